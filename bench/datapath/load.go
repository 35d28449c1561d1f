package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const ordinaryTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// workload is one row of the table.
type workload struct {
	name        string
	grpc        bool
	connections int
	bytes       int
	trial       bool // a trial's trace id, for proxies that know one
}

func (w *workload) trace() string {
	if w.trial {
		return fmt.Sprintf("00-5f1c%x00112233445566-00f067aa0ba902b7-01", trialKey)
	}
	return ordinaryTrace
}

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkErrors   = regexp.MustCompile(`(Non-2xx|Socket errors).*`)
	h2Succeeded = regexp.MustCompile(`(\d+) succeeded, (\d+) failed`)
)

// run sends the workload's requests as fast as they are answered, and returns how
// many there were.
// body is a file with a gRPC message.
func (w *workload) run(ctx context.Context, p *proxy, pinned []string, body string, d time.Duration) (int, error) {
	var args []string
	if w.grpc {
		args = []string{
			"h2load", "-t1", "-c" + strconv.Itoa(w.connections), "-m10", "-D" + strconv.Itoa(max(1, int(d.Seconds()))),
			"-H", "content-type: application/grpc", "-H", "te: trailers", "-H", "traceparent: " + w.trace(),
			"-d", body, "http://" + p.grpc + "/cart.Cart/Add",
		}
	} else {
		args = []string{
			"wrk", "-t1", "-c" + strconv.Itoa(w.connections), "-d" + strconv.Itoa(max(1, int(d.Seconds()))),
			"-H", "traceparent: " + w.trace(), "http://" + p.http + "/" + strconv.Itoa(w.bytes),
		}
	}
	args = append(slices.Clone(pinned), args...)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	if w.grpc {
		m := h2Succeeded.FindSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("h2load: %s", out)
		}
		n, _ := strconv.Atoi(string(m[1])) // digits
		if failed, _ := strconv.Atoi(string(m[2])); failed*100 > n {
			return n, fmt.Errorf("h2load at %s: %d of %d failed", p.name, failed, n)
		}
		return n, nil
	}
	m := wrkRequests.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("wrk: %s", out)
	}
	n, _ := strconv.Atoi(string(m[1])) // digits
	if e := wrkErrors.Find(out); e != nil {
		return n, fmt.Errorf("wrk at %s: %s", p.name, e)
	}
	return n, nil
}

// openLoop sends requests at a fixed rate, whether or not earlier ones have been
// answered, and returns their latencies from the moment at which each was due, sorted.
func openLoop(ctx context.Context, address string, rate int, d time.Duration) ([]time.Duration, error) {
	const connections = 16
	total := int(d.Seconds() * float64(rate))
	latencies := make([]time.Duration, total)
	begun := time.Now()
	var wg sync.WaitGroup
	errs := make(chan error, connections)
	for c := range connections {
		wg.Go(func() {
			conn, err := net.Dial("tcp", address) //nolint:noctx // loopback, at once
			if err != nil {
				errs <- err
				return
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			request := "GET /12 HTTP/1.1\r\nHost: a\r\ntraceparent: " + ordinaryTrace + "\r\n\r\n"
			for i := c; i < total; i += connections {
				due := begun.Add(time.Duration(i) * time.Second / time.Duration(rate))
				time.Sleep(time.Until(due))
				if ctx.Err() != nil {
					return
				}
				if _, err := io.WriteString(conn, request); err != nil {
					errs <- err
					return
				}
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					errs <- err
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close() // it has been read
				if err != nil {
					errs <- err
					return
				}
				latencies[i] = time.Since(due)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
	}
	slices.Sort(latencies)
	return latencies, nil
}

// idle opens connections that have had one request each, and returns what closes them.
func idle(address string, n int) (func(), error) {
	var conns []net.Conn
	done := func() {
		for _, c := range conns {
			_ = c.Close() // nothing is lost
		}
	}
	b := make([]byte, 4096)
	for range n {
		c, err := net.Dial("tcp", address) //nolint:noctx // loopback, at once
		if err != nil {
			done()
			return nil, err
		}
		conns = append(conns, c)
		if _, err := io.WriteString(c, "GET /12 HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			done()
			return nil, err
		}
		if _, err := c.Read(b); err != nil {
			done()
			return nil, err
		}
	}
	return done, nil
}
