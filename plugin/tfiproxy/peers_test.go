package tfiproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// The gRPC peers of these tests all play the same two parts. A client makes calls,
// named KIND:METHOD:MESSAGES:BYTES, and says a line for each: kind, method, code, messages and
// bytes that came back, milliseconds, x-fic-* metadata, details. A callee sends
// messages back: those of kind `server` twenty times, those of kind `client` summed up; /s/Fail
// fails after that. Metadata x-kind tells it the kind.

// peerDelay is the delay of the delayed calls.
const peerDelay = 150 * time.Millisecond

var peerKinds = []string{"unary", "server", "client", "bidi"}

// peerMethods are the calls and what becomes of them in a trial. code is the gRPC
// code; late: after peerDelay; whole: all messages arrive.
var peerMethods = []struct {
	method string
	fault  *tfiv1.Fault
	phase  tfiv1.Phase
	code   codes.Code
	late   bool
	whole  bool
}{
	{"/s/Echo", nil, 0, codes.OK, false, true},
	{"/s/Fail", nil, 0, codes.NotFound, false, false},
	{"/s/ReqError", peerError, tfiv1.Phase_PHASE_REQ, codes.ResourceExhausted, false, false},
	{"/s/ReqAbort", peerAbort, tfiv1.Phase_PHASE_REQ, codes.Internal, false, false},
	{"/s/ReqDelay", peerLate, tfiv1.Phase_PHASE_REQ, codes.OK, true, true},
	{"/s/RespError", peerError, tfiv1.Phase_PHASE_RESP, codes.ResourceExhausted, false, false},
	{"/s/RespAbort", peerAbort, tfiv1.Phase_PHASE_RESP, codes.Internal, false, false},
	{"/s/RespDelay", peerLate, tfiv1.Phase_PHASE_RESP, codes.OK, true, true},
}

const peerDetails = "full — up"

var (
	peerError = &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{GrpcStatus: 8, GrpcMessage: peerDetails}}}
	peerAbort = &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}
	peerLate  = &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(peerDelay)}}}}
)

// peerLanguages are the foreign peers, and how to get them.
var peerLanguages = []struct {
	name    string
	program []string
	needs   string
	env     string
}{
	{"Python grpcio", []string{"../../.tools/grpcio/bin/python", "testdata/peer.py"}, "../../.tools/grpcio/ready", "make grpcio"},
	{"Node grpc-js", []string{"node", "testdata/peer.js"}, "../../.tools/grpcjs/ready", "make grpcjs"},
}

// foreign returns a peer's command, or skips. It outlives the test by its clean-up.
func foreign(t *testing.T, language int, args ...string) *exec.Cmd {
	t.Helper()
	l := peerLanguages[language]
	if _, err := os.Stat(l.needs); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no %s: %s", l.name, l.env)
		}
		t.Skipf("no %s: %s", l.name, l.env)
	}
	program := l.program[0]
	if strings.Contains(program, "/") {
		var err error
		if program, err = filepath.Abs(program); err != nil {
			t.Fatal(err)
		}
	}
	modules, err := filepath.Abs("../../.tools/grpcjs/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, append(l.program[1:len(l.program):len(l.program)], args...)...)
	cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8", "NODE_PATH="+modules)
	return cmd
}

// peerProxy leads to a callee, with the faults of peerMethods in the trial of key.
func peerProxy(t *testing.T, callee string) (addr string, key tfi.Key) {
	t.Helper()
	cfg := outboundTo(callee)
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p := startProxy(t, cfg)
	key = behaviour.NewKey()
	a := behaviour.Activation(key, 0)
	for _, m := range peerMethods {
		if m.fault != nil {
			a.Tfics = append(a.Tfics, &tfiv1.Tfic{
				Id: m.method[len("/s/"):], Fault: m.fault, MaxInjections: 100,
				Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: m.method[1:], Phase: m.phase},
			})
		}
	}
	policy, err := proto.Marshal(behaviour.Policy("v1", a))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := p.metrics.get(metricInternal) + p.metrics.get(metricMalformed); n != 0 {
			t.Errorf("%d errors", n)
		}
	})
	return p.Addr(0).String(), key
}

// peerCalls are the calls of all kinds and methods, and one that no window holds.
func peerCalls() (calls []string) {
	for _, kind := range peerKinds {
		messages := 10
		if kind == "unary" || kind == "server" {
			messages = 1
		}
		for _, m := range peerMethods {
			calls = append(calls, fmt.Sprintf("%s:%s:%d:1000", kind, m.method, messages))
		}
	}
	return append(calls, "unary:/s/Echo:1:3000000", "bidi:/s/Echo:100:30000")
}

// checkPeer looks at what a client said of peerCalls.
func checkPeer(t *testing.T, said []byte, trial bool) {
	t.Helper()
	calls := peerCalls()
	lines := bufio.NewScanner(bytes.NewReader(said))
	for ; lines.Scan(); calls = calls[1:] {
		if len(calls) == 0 {
			t.Fatalf("more than it was asked for:\n%s", said)
		}
		if err := checkPeerCall(calls[0], lines.Text(), trial); err != nil {
			t.Errorf("%s: %v: %s", calls[0], err, lines.Text())
		}
	}
	if len(calls) > 0 {
		t.Fatalf("%d calls are missing:\n%s", len(calls), said)
	}
}

func checkPeerCall(call, line string, trial bool) error {
	f := strings.SplitN(line, "|", 8)
	if len(f) != 8 {
		return errors.New("not a call's line")
	}
	parts := strings.Split(call, ":")
	kind, method := parts[0], parts[1]
	sent, _ := strconv.Atoi(parts[2])
	size, _ := strconv.Atoi(parts[3])
	for _, m := range peerMethods {
		if m.method != method {
			continue
		}
		code, late, whole, fic := m.code, m.late, m.whole, "-"
		if m.fault != nil && !trial {
			code, late, whole = codes.OK, false, true
		}
		if m.fault == peerError && trial {
			fic = "x-fic-injected=" + method[len("/s/"):]
		}
		took, _ := strconv.Atoi(f[5])
		switch {
		case f[0] != kind || f[1] != method:
			return errors.New("another call")
		case f[2] != codeName(code):
			return fmt.Errorf("not %s", codeName(code))
		case f[6] != fic:
			return fmt.Errorf("metadata, not %s", fic)
		case code == codes.ResourceExhausted && f[7] != peerDetails:
			return errors.New("other details")
		case late && time.Duration(took+2)*time.Millisecond < peerDelay:
			return errors.New("too early")
		}
		if !whole {
			return nil
		}
		messages, total := sent, 0
		for i := range sent {
			total += len(strconv.Itoa(i)) + 1 + size
		}
		switch kind {
		case "server":
			messages, total = 20, 20*total
		case "client":
			messages, total = 1, len(strconv.Itoa(total))
		}
		if f[3] != strconv.Itoa(messages) || f[4] != strconv.Itoa(total) {
			return fmt.Errorf("not %d messages of %d bytes", messages, total)
		}
		return nil
	}
	return errors.New("no such method")
}

// codeName is a code's name in all languages but Go.
func codeName(c codes.Code) string {
	return map[codes.Code]string{
		codes.OK: "OK", codes.NotFound: "NOT_FOUND", codes.ResourceExhausted: "RESOURCE_EXHAUSTED", codes.Internal: "INTERNAL",
		codes.Unavailable: "UNAVAILABLE", codes.Canceled: "CANCELLED", codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.Unknown: "UNKNOWN",
	}[c]
}

// TestForeignClients has clients that are built on other HTTP/2s: gRPC's C core,
// whose encoder keeps tables as it likes, and Node's nghttp2.
func TestForeignClients(t *testing.T) {
	for i, l := range peerLanguages {
		t.Run(l.name, func(t *testing.T) {
			addr, key := peerProxy(t, goCallee(t))
			for name, trace := range map[string]tfi.TraceID{"ordinary": behaviour.OrdinaryTrace, "trial": tfi.NewTraceID(key, 1)} {
				cmd := foreign(t, i, append([]string{"call", addr, "00-" + trace.String() + "-00f067aa0ba902b7-01"}, peerCalls()...)...)
				var complaints bytes.Buffer
				cmd.Stderr = &complaints
				said, err := cmd.Output()
				if err != nil {
					t.Fatalf("%s: %v\n%s%s", name, err, said, complaints.String())
				}
				checkPeer(t, said, name == "trial")
			}
		})
	}
}

// TestForeignCallees has the same as callees.
func TestForeignCallees(t *testing.T) {
	for i, l := range peerLanguages {
		t.Run(l.name, func(t *testing.T) {
			args := []string{"serve"}
			for _, m := range peerMethods {
				args = append(args, m.method)
			}
			cmd := foreign(t, i, args...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = t.Output()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = in.Close() // ends it
				if err := cmd.Wait(); err != nil {
					t.Error(err)
				}
			})
			callee, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			addr, key := peerProxy(t, strings.TrimSpace(callee))
			checkPeer(t, goCaller(t, addr, behaviour.OrdinaryTrace, false), false)
			checkPeer(t, goCaller(t, addr, tfi.NewTraceID(key, 1), true), true)
		})
	}
}
