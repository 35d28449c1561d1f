package tfiproxy

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// slowCollector takes one request at a time: it tells how long its body is, and answers
// when it is told to.
type slowCollector struct {
	address string
	body    []byte // of the latest request
	came    chan int
	answer  chan struct{}
}

func newSlowCollector(t *testing.T) *slowCollector {
	t.Helper()
	c := &slowCollector{body: make([]byte, 0, 4<<20), came: make(chan int), answer: make(chan struct{})}
	done := t.Context().Done()
	c.address = rawServer(t, func(conn *net.TCPConn, _ int) {
		head := make([]byte, 0, 4096)
		for {
			for headEnd(head, 0) == 0 {
				n, err := conn.Read(head[len(head):cap(head)])
				if err != nil {
					return
				}
				head = head[:len(head)+n]
			}
			end := headEnd(head, 0)
			_, announced, _ := bytes.Cut(head[:end], []byte("content-length: "))
			announced, _, _ = bytes.Cut(announced, []byte("\r\n"))
			length, _ := strconv.Atoi(string(announced))
			c.body = append(c.body[:0], head[end:]...)
			for len(c.body) < length {
				n, err := conn.Read(c.body[len(c.body):length])
				if err != nil {
					return
				}
				c.body = c.body[:len(c.body)+n]
			}
			head = head[:0]
			select {
			case c.came <- length:
			case <-done:
				return
			}
			select {
			case <-c.answer:
			case <-done:
				return
			}
			if _, err := conn.Write([]byte(plainAnswer)); err != nil {
				return
			}
		}
	})
	return c
}

// startReporter runs a reporter until the test's end.
func startReporter(t *testing.T, collector string) *reporter {
	t.Helper()
	r := newReporter(&Config{
		Clusters: map[string]string{"collector": collector}, Timeouts: Timeouts{Connect: time.Second},
	}, &metrics{}, time.Now())
	r.to(&tfi.Policy{Service: "shop", Reporting: tfi.Reporting{Cluster: "collector", Path: "/v1/traces", Authority: "c"}})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// TestReportsToSlowCollector has spans pile up behind a request, among them one that no
// buffer has room for: all of them arrive, in their order.
func TestReportsToSlowCollector(t *testing.T) {
	c := newSlowCollector(t)
	r := startReporter(t, c.address)
	record := &tfi.Record{Role: tfi.RoleClient, Service: "shop", API: []byte("GET /"), Req: tfi.EventRecord{Seq: 1}}
	var want []string
	add := func(path string) {
		record.Path = []byte(path)
		r.add(record, 1)
		want = append(want, path)
	}
	add("/first")
	<-c.came
	for i := range 500 {
		add("/" + strconv.Itoa(i) + strings.Repeat("x", 512))
		if i == 300 {
			add("/odd" + strings.Repeat("y", 2*largeBuffer))
		}
	}
	var got []string
	for len(got) < len(want) {
		var request collectorv1.ExportTraceServiceRequest
		if err := proto.Unmarshal(c.body, &request); err != nil {
			t.Fatal(err)
		}
		for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
			for _, a := range s.Attributes {
				if v := a.GetValue().GetStringValue(); strings.HasPrefix(v, "/") {
					got = append(got, v)
				}
			}
		}
		c.answer <- struct{}{}
		if len(got) < len(want) {
			<-c.came
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d spans came, want %d, in their order", len(got), len(want))
	}
}

// TestReportsAllocateNothing says that what piles up behind a slow collector, more than
// once, is kept where what piled up before was.
func TestReportsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := newSlowCollector(t)
	r := startReporter(t, c.address)
	record := &tfi.Record{Role: tfi.RoleClient, API: []byte("GET /"), Path: bytes.Repeat([]byte("/x"), 256), Req: tfi.EventRecord{Seq: 1}}
	size := 0
	pile := func() { // behind the request that the collector has
		for range 700 {
			r.add(record, 1)
		}
		c.answer <- struct{}{}
		size = <-c.came
	}
	r.add(record, 1)
	<-c.came
	pile()
	pile()
	const rounds = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		pile()
	}
	runtime.ReadMemStats(&after)
	if per := int(after.TotalAlloc-before.TotalAlloc) / rounds; per > size/8 || size < 6*reportBytes {
		t.Errorf("%d bytes allocated for a request of %d", per, size)
	}
	c.answer <- struct{}{}
}
