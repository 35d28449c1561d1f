// Package load sends many small requests over kept HTTP/1.1 connections. It does
// little else, so that on a small machine most of the time is left to what is measured.
package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Result of a run.
type Result struct {
	Requests int
	// ByStatus counts answers.
	ByStatus map[int]int
	// Errors are the requests that got no whole answer, and First is the first's.
	Errors int
	First  error
	Took   time.Duration
	// Latencies in ascending order.
	Latencies []time.Duration
}

// Failed counts the requests that were not answered with 200.
func (r *Result) Failed() int { return r.Requests - r.ByStatus[200] }

// Quantile of the latencies, q in [0, 1].
func (r *Result) Quantile(q float64) time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[min(len(r.Latencies)-1, int(q*float64(len(r.Latencies))))]
}

// Run describes a load.
type Run struct {
	// Addr is the host:port to connect to.
	Addr string
	// Connections at once; each sends its next request when the last is answered.
	Connections int
	// Requests in all; 0: until the context ends.
	Requests int
	// Every sends a request of a connection no sooner than this after the last; 0: at once.
	Every time.Duration
	// Trace returns the trace id of request i.
	Trace func(i int) string
}

// Do runs the load.
func (run *Run) Do(ctx context.Context) *Result {
	total := &Result{ByStatus: map[int]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	begun := time.Now()
	for c := range run.Connections {
		wg.Go(func() {
			r := run.connection(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			total.Requests += r.Requests
			total.Errors += r.Errors
			if total.First == nil {
				total.First = r.First
			}
			for s, n := range r.ByStatus {
				total.ByStatus[s] += n
			}
			total.Latencies = append(total.Latencies, r.Latencies...)
		})
	}
	wg.Wait()
	total.Took = time.Since(begun)
	slices.Sort(total.Latencies)
	return total
}

// client is one kept connection.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

func (run *Run) connection(ctx context.Context, c int) *Result {
	r := &Result{ByStatus: map[int]int{}}
	var cl *client
	defer func() {
		if cl != nil {
			_ = cl.conn.Close() // done with it
		}
	}()
	for i := c; (run.Requests == 0 || i < run.Requests) && ctx.Err() == nil; i += run.Connections {
		at := time.Now()
		if cl == nil {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", run.Addr)
			if err != nil {
				r.fail(err)
				return r
			}
			cl = &client{conn: conn, r: bufio.NewReaderSize(conn, 4096)}
		}
		status, again, err := cl.ask(run.Trace(i))
		if err != nil || !again {
			_ = cl.conn.Close() // of no more use
			cl = nil
		}
		if err != nil {
			r.fail(err)
			continue
		}
		r.Requests++
		r.ByStatus[status]++
		r.Latencies = append(r.Latencies, time.Since(at))
		if rest := run.Every - time.Since(at); rest > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(rest):
			}
		}
	}
	return r
}

func (r *Result) fail(err error) {
	r.Requests++
	r.Errors++
	if r.First == nil {
		r.First = err
	}
}

var errAnswer = errors.New("no whole answer")

// ask sends a request and reads its answer; again is false if the server closes.
func (c *client) ask(trace string) (status int, again bool, err error) {
	_ = c.conn.SetDeadline(time.Now().Add(30 * time.Second)) // a dead connection shows below
	_, err = io.WriteString(c.conn, "GET /items HTTP/1.1\r\nhost: test\r\nuser-agent: load\r\naccept: */*\r\ntraceparent: 00-"+trace+"-00f067aa0ba902b7-01\r\n\r\n")
	if err != nil {
		return 0, false, err
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if len(line) < 12 {
		return 0, false, errAnswer
	}
	if status, err = strconv.Atoi(line[9:12]); err != nil {
		return 0, false, errAnswer
	}
	length, again := -1, true
	for {
		if line, err = c.r.ReadString('\n'); err != nil {
			return 0, false, fmt.Errorf("%w: %w", errAnswer, err)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case strings.EqualFold(name, "content-length"):
			if length, err = strconv.Atoi(value); err != nil {
				return 0, false, errAnswer
			}
		case strings.EqualFold(name, "connection"):
			again = !strings.EqualFold(value, "close")
		}
	}
	if length < 0 {
		return 0, false, fmt.Errorf("%w: no content-length", errAnswer)
	}
	if _, err = c.r.Discard(length); err != nil {
		return 0, false, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return status, again, nil
}
