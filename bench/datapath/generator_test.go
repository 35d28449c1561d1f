package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// listenFor serves connections until the test ends.
func listenFor(t *testing.T, handle func(net.Conn)) string {
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
				handle(c)
			}()
		}
	}()
	return l.Addr().String()
}

// TestGeneratorAndCallees sends every shape at both paces to the real callees.
func TestGeneratorAndCallees(t *testing.T) {
	http, grpc := listenFor(t, calleeHTTP1), listenFor(t, calleeHTTP2)
	for _, sh := range []shape{shapeGet, shapeUnary, shapeSend, shapeServer, shapeBidi} {
		for _, bytes := range []int{0, 1 << 10, 64 << 10, 1 << 20} {
			for _, rate := range []int{0, 200} {
				if sh == shapeBidi && rate > 0 || sh == shapeServer && bytes > 1<<10 {
					continue // there is no pace for the one, and too much of the other
				}
				t.Run(fmt.Sprintf("%s/%d/%d", sh, bytes, rate), func(t *testing.T) {
					l := load{
						Address: http, Shape: sh, Connections: 3, Bytes: bytes, Rate: rate, Duration: 100 * time.Millisecond,
						Traceparent: (&keys{}).traceparent(ordinary),
					}
					if sh.grpc() {
						l.Address, l.Streams = grpc, 4
					}
					r, err := runLoad(&l)
					if err != nil {
						t.Fatal(err)
					}
					if rate > 0 && r.Requests != 20 {
						t.Errorf("%d requests at %d a second in %v", r.Requests, rate, l.Duration)
					}
					if r.Requests < 3 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.P999 || r.P999 > r.Max {
						t.Errorf("%+v", r)
					}
				})
			}
		}
	}
}

// TestNoCoordinatedOmission has a callee that pauses once: requests that were due
// meanwhile must show how long they waited, although they were sent after it.
func TestNoCoordinatedOmission(t *testing.T) {
	const pause = 300 * time.Millisecond
	var paused atomic.Bool
	address := listenFor(t, func(c net.Conn) {
		b := make([]byte, 4096)
		for n := 0; ; n++ {
			if _, err := c.Read(b); err != nil {
				return
			}
			if n == 20 && !paused.Swap(true) {
				time.Sleep(pause)
			}
			if _, err := c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")); err != nil {
				return
			}
		}
	})
	r, err := runLoad(&load{Address: address, Shape: shapeGet, Connections: 1, Rate: 1000, Duration: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// Half of all requests were due in the pause. A generator that waited for each
	// answer would have seen a single slow one, far above the 99th percentile.
	if r.Requests != 600 || r.P99 < float64(pause.Microseconds())/2 {
		t.Errorf("%d requests; p50 %.0f, p99 %.0f µs: those that were due in a pause of %v do not show it", r.Requests, r.P50, r.P99, pause)
	}
}

func TestGeneratorTellsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		shape  shape
		want   error
		says   string
	}{
		"an error":          {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", shapeGet, errAnswer, "503"},
		"no length":         {"HTTP/1.1 200 OK\r\n\r\n", shapeGet, errAnswer, "no content-length"},
		"a closed one":      {"", shapeGet, errGone, ""},
		"a reset stream":    {string(appendFrame(nil, frameReset, 0, 1, []byte{0, 0, 0, 2})), shapeUnary, errAnswer, "type 3"},
		"a goaway":          {string(appendFrame(nil, frameGoAway, 0, 0, make([]byte, 8))), shapeUnary, errAnswer, "type 7"},
		"trailers only":     {string(appendFrame(nil, frameHeaders, flagEnd|flagEndHeaders, 1, calleeTail)), shapeUnary, errAnswer, "too early"},
		"an end by DATA":    {string(appendFrame(nil, frameData, flagEnd, 1, []byte("x"))), shapeUnary, errAnswer, "no trailers"},
		"more than is sent": {string(appendFrame(nil, frameData, 0, 1, make([]byte, 4000))), shapeBidi, errAnswer, "4000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			address := listenFor(t, func(conn net.Conn) {
				b := make([]byte, 4096)
				_, _ = conn.Read(b)
				_, _ = conn.Write([]byte(c.answer))
				for c.answer != "" {
					if _, err := conn.Read(b); err != nil {
						return
					}
				}
			})
			_, err := runLoad(&load{Address: address, Shape: c.shape, Connections: 1, Streams: 1, Rate: 10, Duration: 100 * time.Millisecond})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v that says %q", err, c.want, c.says)
			}
		})
	}
}

// TestTakeInPieces gives answers byte by byte.
func TestTakeInPieces(t *testing.T) {
	var h2 []byte
	h2 = appendFrame(h2, frameSettings, 0, 0, nil)
	h2 = appendFrame(h2, frameHeaders, flagEndHeaders, 1, calleeHead)
	h2 = appendFrame(h2, frameData, 0, 1, []byte("hello"))
	h2 = appendFrame(h2, frameHeaders, flagEndHeaders|flagEnd, 1, calleeTail)
	for name, c := range map[string]struct {
		peer   peer
		answer string
	}{
		"HTTP/1.1": {newClientHTTP1(&load{}), "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"},
		"HTTP/2":   {newClientHTTP2(&load{Shape: shapeUnary}, 1), string(h2)},
	} {
		for step := 1; step <= len(c.answer); step++ {
			t.Run(fmt.Sprintf("%s/%d", name, step), func(t *testing.T) {
				p := c.peer
				if x, ok := p.(*clientHTTP2); ok {
					p = newClientHTTP2(&load{Shape: x.shape}, 1)
				}
				p.ask(nil, 0)
				var got, reply []byte
				done := 0
				for piece := range slices.Chunk([]byte(c.answer), step) {
					got = append(got, piece...)
					used, err := p.take(got, &reply, func(int) { done++ })
					if err != nil {
						t.Fatal(err)
					}
					got = got[used:]
				}
				if done != 1 || len(got) != 0 {
					t.Errorf("done %d times, %d bytes left", done, len(got))
				}
			})
		}
	}
}

func TestRing(t *testing.T) {
	var r ring[int]
	next, want := 0, 0
	for round := range 100 {
		for range round {
			r.push(next)
			next++
		}
		for range round * 2 / 3 {
			if got := r.pop(); got != want {
				t.Fatalf("popped %d, want %d", got, want)
			}
			want++
		}
		if r.len() != next-want {
			t.Fatalf("%d in it, want %d", r.len(), next-want)
		}
	}
}

func TestMicros(t *testing.T) {
	v := make([]time.Duration, 1000)
	for i := range v {
		v[i] = time.Duration(i+1) * time.Microsecond
	}
	for q, want := range map[float64]float64{0.5: 500, 0.99: 990, 0.999: 999, 1: 1000, 0: 1} {
		if got := micros(v, q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if micros(nil, 0.5) != 0 {
		t.Error("of nothing")
	}
}
