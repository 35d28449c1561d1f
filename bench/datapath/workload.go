package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// shape is what a request and its answer look like.
type shape string

const (
	shapeGet    shape = "get"    // HTTP/1.1: a request without a body, an answer of some bytes
	shapePost   shape = "post"   // HTTP/1.1: a request with a body, an answer without; as fast as answered only
	shapeSend   shape = "send"   // gRPC: a message of some bytes up, an empty one down; as fast as answered only
	shapeUnary  shape = "unary"  // gRPC: one message each way
	shapeServer shape = "server" // gRPC: one message up, many down
	shapeBidi   shape = "bidi"   // gRPC: messages go up one at a time, and each comes back
)

func (s shape) grpc() bool { return s != shapeGet && s != shapePost }

// traffic says what a sidecar makes of a request, by its trace id.
type traffic string

const (
	ordinary  traffic = ""          // of no trial
	recording traffic = "recording" // of a clean run: counted and reported
	trial     traffic = "trial"     // judged at every event as well: guards that do not hold
)

// ordinaryTrace has no magic in it.
var ordinaryTrace = tfi.TraceID{0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36}

const (
	// streamsPerConnection is how many gRPC calls go on at once on each connection.
	streamsPerConnection = 10
	// serverMessages is how many messages a server streaming call answers.
	serverMessages = 100
)

// keys are the activations of one round; no activation lives longer than an hour,
// and a whole run may.
type keys struct {
	recording, trial tfi.Key
	run              uint64 // of the measurements, each of which has a trace of its own
}

func (k *keys) traceID(t traffic) tfi.TraceID {
	switch t {
	case recording:
		return tfi.NewTraceID(k.recording, k.run)
	case trial:
		return tfi.NewTraceID(k.trial, k.run)
	}
	return ordinaryTrace
}

// traceparent of a request.
func (k *keys) traceparent(t traffic) string {
	return "00-" + k.traceID(t).String() + "-00f067aa0ba902b7-01"
}

// workload is one row of the tables.
type workload struct {
	shape       shape
	connections int
	bytes       int // of an answer, of an upload, or of a message
	traffic     traffic
}

// id is short and stable, for CSV files and plots.
func (w workload) id() string {
	s := fmt.Sprintf("%s-%d-c%d", w.shape, w.bytes, w.connections)
	if w.traffic != ordinary {
		s += "-" + string(w.traffic)
	}
	return s
}

// name is for people.
func (w workload) name() string {
	s := map[shape]string{
		shapeGet: "HTTP/1.1", shapePost: "HTTP/1.1 upload", shapeSend: "gRPC upload", shapeUnary: "gRPC unary", shapeServer: "gRPC server stream, a message", shapeBidi: "gRPC bidi stream, a message",
	}[w.shape]
	s += ", " + size(w.bytes) + ", " + strconv.Itoa(w.connections) + " conn"
	switch w.traffic {
	case recording:
		s += ", clean recording"
	case trial:
		s += ", a trial's"
	}
	return s
}

// counted is what one request counts for: streams are told by the message.
func (w workload) counted() int {
	if w.shape == shapeServer {
		return serverMessages
	}
	return 1
}

func size(n int) string {
	switch {
	case n >= 1<<20:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 1<<10:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n) + " B"
}

var (
	connectionCounts = []int{1, 4, 8, 16, 64}
	bodySizes        = []int{0, 1 << 10, 64 << 10, 1 << 20}
)

// workloads of the closed loop: as fast as they are answered.
func workloads(quick bool) []workload {
	var all []workload
	for _, b := range bodySizes {
		for _, c := range connectionCounts {
			if !quick || b == 0 || c == 8 {
				all = append(all, workload{shape: shapeGet, connections: c, bytes: b})
			}
		}
	}
	for _, b := range bodySizes[2:] {
		all = append(all, workload{shape: shapePost, connections: 8, bytes: b})
	}
	for _, c := range connectionCounts {
		if !quick || c == 1 || c == 8 {
			all = append(all, workload{shape: shapeUnary, connections: c})
		}
	}
	if !quick {
		for _, b := range bodySizes[1:] {
			all = append(all, workload{shape: shapeUnary, connections: 8, bytes: b})
		}
	}
	all = append(all, workload{shape: shapeSend, connections: 8, bytes: 64 << 10})
	for _, s := range []shape{shapeServer, shapeBidi} {
		for _, c := range connectionCounts {
			if c == 8 || !quick && c != 4 && c != 16 {
				all = append(all, workload{shape: s, connections: c, bytes: 1 << 10})
			}
		}
	}
	for _, s := range []shape{shapeGet, shapeUnary} {
		for _, c := range []int{1, 8, 64} {
			if !quick || c == 8 {
				all = append(all, workload{shape: s, connections: c, traffic: trial})
			}
		}
		all = append(all, workload{shape: s, connections: 8, traffic: recording})
	}
	return append(all, workload{shape: shapeBidi, connections: 8, bytes: 1 << 10, traffic: trial})
}

// pace is a workload of the open loop: a fixed rate, whether or not earlier
// requests have been answered.
type pace struct {
	workload
	rate int
}

func (p pace) id() string { return fmt.Sprintf("%s-r%d", p.workload.id(), p.rate) }

func (p pace) name() string { return fmt.Sprintf("%s, %d/s", p.workload.name(), p.rate) }

// paces are below the knee of every proxy, also of the slowest.
func paces(quick bool) []pace {
	get := func(bytes int, t traffic) workload {
		return workload{shape: shapeGet, connections: 16, bytes: bytes, traffic: t}
	}
	unary := workload{shape: shapeUnary, connections: 4}
	all := []pace{{get(0, ordinary), 2000}, {unary, 2000}, {get(0, trial), 2000}}
	if !quick {
		judged := unary
		judged.traffic = trial
		all = append(
			all,
			pace{get(0, ordinary), 500}, pace{get(0, ordinary), 5000}, pace{get(64<<10, ordinary), 1000},
			pace{unary, 500}, pace{unary, 5000}, pace{judged, 2000},
		)
	}
	return all
}

// load is what the generator is told, in a process of its own.
type load struct {
	Address     string        `json:"address"`
	Shape       shape         `json:"shape"`
	Connections int           `json:"connections"`
	Streams     int           `json:"streams"` // on each connection at once
	Bytes       int           `json:"bytes"`
	Traceparent string        `json:"traceparent"`
	Rate        int           `json:"rate"` // requests a second; 0: the next as soon as one is answered
	Duration    time.Duration `json:"duration"`
}

func (l *load) path() string {
	if l.Shape.grpc() {
		return "/cart.Cart/Add"
	}
	return "/" + strconv.Itoa(l.Bytes)
}

// message is the first that a gRPC call sends; it tells the callee what to answer
// (see answerOf), since a path would come in HPACK.
func (s shape) message(bytes int) []byte {
	var text string
	switch s {
	case shapeUnary:
		text = fmt.Sprintf("%s 1 %d", answerMany, bytes)
	case shapeSend:
		text = answerMany + " 1 0\n"
		text += strings.Repeat("x", max(0, bytes-len(text)))
	case shapeServer:
		text = fmt.Sprintf("%s %d %d", answerMany, serverMessages, bytes)
	case shapeBidi:
		b := make([]byte, max(bytes, len(answerEcho)))
		copy(b, answerEcho)
		text = string(b)
	}
	return frameMessage(nil, []byte(text))
}

// frameMessage puts gRPC's length before a message.
func frameMessage(b, message []byte) []byte {
	n := len(message)
	b = append(b, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	return append(b, message...)
}
