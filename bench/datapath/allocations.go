package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// allocated is how many objects TFIProxy allocates for a request.
type allocated struct {
	Workload   string  `json:"workload"`
	Requests   int     `json:"requests"`
	PerRequest float64 `json:"per_request"`
}

// allocations counts them in real processes that take down every object and never
// collect.
func (b *bed) allocations(ctx context.Context, requests int) (all []allocated, err error) {
	command := append(append([]string{}, b.proxyCPU...), "env", "GODEBUG=memprofilerate=1", "GOGC=off")
	start := func(ctx context.Context) (*proxy, error) {
		return b.runTFIProxy(ctx, "tfiproxy-profiled", b.tfiproxyProgram(), command)
	}
	for _, w := range []workload{
		{shape: shapeGet, connections: 8},
		{shape: shapeGet, connections: 8, traffic: trial},
		{shape: shapeUnary, connections: 8},
		{shape: shapeUnary, connections: 8, traffic: trial},
	} {
		n, err := b.perRequest(ctx, w, requests, start)
		if err != nil {
			return all, err
		}
		all = append(all, allocated{Workload: w.name(), Requests: requests, PerRequest: n})
	}
	return all, nil
}

// warmUp is how many requests fill pools and tables.
const warmUp = 1000

// perRequest compares two processes, one of which has answered so many requests more
// over as many connections. Each profile is read once: without collections a second
// would be the first again (runtime.memProfileInternal).
func (b *bed) perRequest(ctx context.Context, w workload, requests int, start func(context.Context) (*proxy, error)) (float64, error) {
	var count [2]int64
	for i, n := range []int{warmUp, warmUp + requests} {
		p, err := start(ctx)
		if err != nil {
			return 0, err
		}
		err = b.exactly(ctx, w, p, n)
		if err == nil {
			count[i], err = p.allocated(ctx)
		}
		p.stop()
		if err != nil {
			return 0, err
		}
	}
	return max(0, float64(count[1]-count[0])/float64(requests)), nil
}

// exactly sends so many requests.
func (b *bed) exactly(ctx context.Context, w workload, p *proxy, n int) error {
	args := []string{"-n", strconv.Itoa(n), "-c", strconv.Itoa(w.connections)}
	header := "traceparent: " + b.keys.traceparent(w.traffic)
	var out []byte
	var err error
	if w.shape.grpc() {
		body, err := b.write("message", string(w.shape.message(w.bytes)))
		if err != nil {
			return err
		}
		out, err = b.h2load(ctx, p, header, append(args, "-m", strconv.Itoa(streamsPerConnection), "-d", body)...)
		if err != nil {
			return err
		}
	} else if out, err = b.tool(ctx, append([]string{"h2load", "--h1", "-t1", "-H", header, "http://" + p.http + "/0"}, args...)...); err != nil {
		return err
	}
	_, err = parseH2load(out, 0)
	return err
}

var errProfile = errors.New("unexpected profile")

// allocated is how many objects the process has allocated so far.
func (p *proxy) allocated(ctx context.Context) (int64, error) {
	b, err := get(ctx, "http://"+p.admin+"/debug/pprof/allocs")
	if err != nil {
		return 0, err
	}
	return allocObjects(b)
}

// allocObjects sums the first value of all samples of a profile of allocations
// (profile.proto of github.com/google/pprof), which is the number of objects.
func allocObjects(gzipped []byte) (sum int64, err error) {
	r, err := gzip.NewReader(bytes.NewReader(gzipped))
	if err != nil {
		return 0, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return 0, err
	}
	const profileSample, sampleValue = 2, 2
	err = eachField(b, func(n protowire.Number, sample []byte) error {
		if n != profileSample {
			return nil
		}
		return eachField(sample, func(n protowire.Number, values []byte) error {
			if n != sampleValue {
				return nil
			}
			first, size := protowire.ConsumeVarint(values)
			if size < 0 {
				return errProfile
			}
			sum += int64(first)
			return nil
		})
	})
	return sum, err
}

// eachField calls f for the fields of a message that have a length.
func eachField(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		n, t, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errProfile
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, t, b); size < 0 {
			return errProfile
		}
		if t == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b) // its size is right
			if err := f(n, value); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}
