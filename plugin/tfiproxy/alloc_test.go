package tfiproxy

import (
	"net"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// echoHTTP1 answers every read on every connection with the same bytes, and
// allocates nothing while it does.
func echoHTTP1(t testing.TB, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, answer := make([]byte, 4096), []byte(answer)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// allocations counts what the whole process allocates a round, a client's
// write and read included, which allocate nothing.
func allocations(t *testing.T, rounds int, round func()) float64 {
	t.Helper()
	for range 200 {
		round()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		round()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(rounds)
}

const ordinaryRequest = "GET /items HTTP/1.1\r\nhost: test\r\nuser-agent: test\r\naccept: */*\r\n" +
	"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"

const plainAnswer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-type: text/plain\r\n\r\nhello"

// reportingProxy is a client's sidecar that records the trial of the key it returns.
func reportingProxy(t testing.TB, cluster, upstream string) (*Proxy, tfi.Key) {
	t.Helper()
	p := startProxy(t, &Config{
		Listeners: []Listener{{Role: tfi.RoleClient, Listen: "127.0.0.1:0", Upstream: upstream, Cluster: cluster}},
		Clusters:  map[string]string{behaviour.ReportCluster: echoHTTP1(t, plainAnswer)},
	})
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	return p, key
}

func TestAllocationsHTTP1(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p, key := reportingProxy(t, behaviour.PeerHTTP1, echoHTTP1(t, plainAnswer))
	for _, c := range []struct {
		name  string
		trace tfi.TraceID
		limit float64
	}{
		{"no trial", behaviour.OrdinaryTrace, 0.05}, // the sweeper's ticks are counted too
		{"trial", tfi.NewTraceID(key, 1), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			caller := newH1Caller(t, p, c.trace)
			n := allocations(t, 2000, func() { caller.round(t) })
			if n > c.limit {
				t.Errorf("%.2f allocations a request, want at most %v", n, c.limit)
			}
			t.Logf("%.3f allocations a request", n)
		})
	}
}

func TestAllocationsHTTP2(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p, key := reportingProxy(t, behaviour.PeerHTTP2, echoHTTP2(t, ":status", "200", "content-type", "application/grpc"))
	for _, c := range []struct {
		name  string
		trace tfi.TraceID
		limit float64
	}{
		{"no trial", behaviour.OrdinaryTrace, 0.05},
		{"trial", tfi.NewTraceID(key, 1), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			caller := newH2Caller(t, p, c.trace, 1)
			n := allocations(t, 2000, func() { caller.round(t) })
			if n > c.limit {
				t.Errorf("%.2f allocations a request, want at most %v", n, c.limit)
			}
			t.Logf("%.3f allocations a request", n)
		})
	}
}
