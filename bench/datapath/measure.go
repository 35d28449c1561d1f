package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answered is what a load generator says it did.
type answered struct {
	requests int
	seconds  float64
}

// The tools that make load: names and Debian packages.
var loadTools = [][2]string{{"wrk", "wrk"}, {"h2load", "nghttp2-client"}}

// closed sends a workload as fast as it is answered. HTTP/1.1 is wrk's and small
// gRPC calls and uploads are h2load's, which others know and trust; what these cannot do, or cut off at
// their end while it is under way, is our generator's.
func (b *bed) closed(ctx context.Context, w workload, p *proxy, d time.Duration) (answered, error) {
	seconds := strconv.Itoa(max(1, int(d.Seconds())))
	header := "traceparent: " + b.keys.traceparent(w.traffic)
	switch {
	case !w.shape.grpc():
		args := []string{"wrk", "-t1", "-c", strconv.Itoa(w.connections), "-d", seconds, "--timeout", "10s", "-H", header}
		answer := w.bytes
		if w.shape == shapePost {
			script, err := b.write("upload.lua", fmt.Sprintf("wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", %d)\n", w.bytes))
			if err != nil {
				return answered{}, err
			}
			args, answer = append(args, "-s", script), 0
		}
		out, err := b.tool(ctx, append(args, "http://"+p.http+"/"+strconv.Itoa(answer))...)
		if err != nil {
			return answered{}, err
		}
		return parseWrk(out)
	case w.shape == shapeUnary && w.bytes == 0, w.shape == shapeSend:
		body, err := b.write("message", string(w.shape.message(w.bytes)))
		if err != nil {
			return answered{}, err
		}
		out, err := b.h2load(ctx, p, header, "-D", seconds, "-c", strconv.Itoa(w.connections), "-m", strconv.Itoa(streamsPerConnection), "-d", body)
		if err != nil {
			return answered{}, err
		}
		return parseH2load(out, w.connections*streamsPerConnection)
	}
	r, err := b.generate(ctx, w, p, 0, d)
	if err != nil {
		return answered{}, err
	}
	return answered{r.Requests * w.counted(), r.Seconds}, nil
}

// h2load makes gRPC calls.
func (b *bed) h2load(ctx context.Context, p *proxy, header string, args ...string) ([]byte, error) {
	args = append([]string{"h2load"}, args...)
	args = append(args, "-t1", "-H", "content-type: application/grpc", "-H", "te: trailers", "-H", header, "http://"+p.grpc+"/cart.Cart/Add")
	return b.tool(ctx, args...)
}

// tool runs a program beside the proxies' CPU.
func (b *bed) tool(ctx context.Context, args ...string) ([]byte, error) {
	args = append(slices.Clone(b.otherCPU), args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, tail(out))
	}
	return out, nil
}

// generate runs our generator in a process of its own.
func (b *bed) generate(ctx context.Context, w workload, p *proxy, rate int, d time.Duration) (*loadResult, error) {
	l := load{
		Address: p.address(w), Shape: w.shape, Connections: w.connections, Bytes: w.bytes,
		Traceparent: b.keys.traceparent(w.traffic), Rate: rate, Duration: d,
	}
	if w.shape.grpc() {
		l.Streams = streamsPerConnection
	}
	in, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(b.otherCPU), b.program, "-role", "generator")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("generator: %w: %s", err, tail(errs.Bytes()))
	}
	r := &loadResult{}
	return r, json.Unmarshal(out.Bytes(), r)
}

// tail is the end of what a program has said.
func tail(b []byte) string {
	b = bytes.TrimSpace(b)
	return string(b[max(0, len(b)-500):])
}

var (
	wrkDone     = regexp.MustCompile(`(\d+) requests in ([\d.]+)(us|ms|s|m),`)
	wrkErrors   = regexp.MustCompile(`(Non-2xx|Socket errors).*`)
	h2Finished  = regexp.MustCompile(`finished in ([\d.]+)(us|ms|s|m),`)
	h2Requests  = regexp.MustCompile(`(\d+) succeeded, (\d+) failed`)
	h2StatusBad = regexp.MustCompile(`status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx`)
)

func parseWrk(out []byte) (answered, error) {
	m := wrkDone.FindSubmatch(out)
	if m == nil {
		return answered{}, fmt.Errorf("wrk: %s", tail(out))
	}
	if e := wrkErrors.Find(out); e != nil {
		return answered{}, fmt.Errorf("wrk: %s", e)
	}
	return answeredIn(m[1], m[2], m[3])
}

// parseH2load allows for as many failures as requests may be under way: at the end
// of its time h2load drops them.
func parseH2load(out []byte, underWay int) (answered, error) {
	m, in := h2Requests.FindSubmatch(out), h2Finished.FindSubmatch(out)
	if m == nil || in == nil {
		return answered{}, fmt.Errorf("h2load: %s", tail(out))
	}
	if failed, _ := strconv.Atoi(string(m[2])); failed > underWay {
		return answered{}, fmt.Errorf("h2load: %s", m[0])
	}
	if bad := h2StatusBad.FindSubmatch(out); bad != nil && string(bad[1])+string(bad[2])+string(bad[3]) != "000" {
		return answered{}, fmt.Errorf("h2load: %s", bad[0])
	}
	return answeredIn(m[1], in[1], in[2])
}

func answeredIn(requests, number, unit []byte) (answered, error) {
	n, err := strconv.Atoi(string(requests))
	if err != nil {
		return answered{}, err
	}
	d, err := time.ParseDuration(string(number) + string(unit))
	if err != nil {
		return answered{}, err
	}
	if n == 0 || d <= 0 {
		return answered{}, fmt.Errorf("no request was answered in %v", d)
	}
	return answered{n, d.Seconds()}, nil
}
