package tfiproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestHTTP2FaultHammer makes every fault in both phases at once, on the streams of
// few connections, beside calls that must not feel any of it: bodies that were swallowed,
// held or made take nothing of the connections' windows for good.
func TestHTTP2FaultHammer(t *testing.T) {
	cfg := outboundTo(plainServer(t))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p := startProxy(t, cfg)
	faults := map[string]*tfiv1.Fault{
		"delay": {Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(3 * time.Millisecond)}}}},
		"error": {Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 502, Body: []byte(strings.Repeat("no ", 1000))}}},
		"abort": {Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
		"drop":  {Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(5 * time.Millisecond)}}},
	}
	key := behaviour.NewKey()
	a := behaviour.Activation(key, 0)
	var paths []string
	for name, f := range faults {
		for phase, of := range map[string]tfiv1.Phase{"req": tfiv1.Phase_PHASE_REQ, "resp": tfiv1.Phase_PHASE_RESP} {
			paths = append(paths, "/"+phase+"/"+name)
			a.Tfics = append(a.Tfics, &tfiv1.Tfic{
				Id: phase + name, Fault: f, MaxInjections: 1 << 20, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
				Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "POST /" + phase + "/" + name, Phase: of},
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
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	call := func(path string, trial uint64, body string) (int, string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr(0).String()+path, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		trace := behaviour.OrdinaryTrace
		if trial > 0 {
			trace = tfi.NewTraceID(key, trial)
		}
		r.Header.Set("traceparent", "00-"+trace.String()+"-00f067aa0ba902b7-01")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return 0, "", err
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		return resp.StatusCode, string(b), err
	}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 15 {
				body := strings.Repeat(fmt.Sprintf("%d-%d ", w, i), 1+i*i*i*3)
				path := paths[(w+i)%len(paths)]
				status, got, err := call(path, uint64(1+i), body)
				switch {
				case strings.HasSuffix(path, "delay"):
					if err != nil || got != body {
						t.Errorf("%s: %d, %d bytes of %d, %v", path, status, len(got), len(body), err)
					}
				case strings.HasSuffix(path, "error"):
					if err != nil || status != 502 || len(got) != 3000 {
						t.Errorf("%s: %d, %d bytes, %v", path, status, len(got), err)
					}
				default:
					if err == nil {
						t.Errorf("%s: %d, %.40q", path, status, got)
					}
				}
				if status, got, err := call("/req/drop", 0, body); err != nil || got != body {
					t.Errorf("ordinary: %d, %d bytes of %d, %v", status, len(got), len(body), err)
				}
			}
		})
	}
	wg.Wait()
	if status, got, err := call("/", 0, strings.Repeat("x", 8<<20)); err != nil || len(got) != 8<<20 {
		t.Errorf("afterwards: %d, %d bytes, %v", status, len(got), err)
	}
	if n := p.metrics.get(metricMalformed) + p.metrics.get(metricInternal); n != 0 {
		t.Errorf("%d errors", n)
	}
}
