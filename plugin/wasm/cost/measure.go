package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/load"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// summary is what summary.json has.
type summary struct {
	Generations int       `json:"generations"`
	Rounds      int       `json:"roundsPerGeneration"`
	Requests    int       `json:"requests"`
	Connections int       `json:"connections"`
	Variants    []variant `json:"variants"`
	Memory      []memory  `json:"memory"`
	LoadSeconds float64   `json:"loadSeconds"`
	BeforeLoad  latency   `json:"beforeLoadMs"`
	DuringLoad  latency   `json:"duringLoadMs"`
	Report      latency   `json:"reportMs"`
	// OK: every bound is met.
	OK bool `json:"ok"`
}

type variant struct {
	Name         string  `json:"name"`
	CPUMicros    float64 `json:"cpuMicrosPerRequest"`
	ExtraPercent float64 `json:"extraPercent"`
	ExtraMin     float64 `json:"extraPercentMin"`
	ExtraMax     float64 `json:"extraPercentMax"`
	// QuietPercent compares the quietest tenth of the rounds: what else runs on a
	// machine makes requests dearer, never cheaper.
	QuietPercent float64 `json:"quietPercent"`
	BoundPercent float64 `json:"boundPercent,omitempty"`

	run    func(ctx context.Context) error
	pid    func() int
	rounds []float64
}

type memory struct {
	Name string  `json:"name"`
	MB   float64 `json:"mb"`
}

type latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

const (
	// trials that are live at once, as in a round of a campaign.
	trials = 64
	// Bounds in percent of bare Envoy.
	ordinaryBound, trialBound, memoryBound = 3, 100, 5
)

// measure starts Envoys anew for each generation: where the memory of an Envoy
// happens to lie makes it some percent dearer than another, for as long as it lives.
func measure(ctx context.Context, progress io.Writer, generations, rounds, requests, connections int) (*summary, error) {
	dir, err := os.MkdirTemp("", "sequencefi-cost-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	module, err := testbed.Build(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	s := &summary{Generations: generations, Rounds: rounds, Requests: requests, Connections: connections, OK: true}
	for g := range generations {
		fmt.Fprintf(progress, "generation %d of %d\n", g+1, generations)
		if err := s.generation(ctx, dir, module, g == 0, g == generations-1); err != nil {
			return nil, err
		}
	}
	s.conclude()
	return s, nil
}

// generation starts all Envoys, measures them for its rounds, and ends them.
func (s *summary) generation(ctx context.Context, dir, module string, first, last bool) error {
	bare, err := testbed.Start(ctx, testbed.Options{Form: testbed.Bare})
	if err != nil {
		return err
	}
	defer bare.Close()
	idle, err := testbed.Start(ctx, testbed.Options{Module: module})
	if err != nil {
		return err
	}
	defer idle.Close()
	gated, err := testbed.Start(ctx, testbed.Options{Module: module})
	if err != nil {
		return err
	}
	defer gated.Close()

	keys := make([]tfi.Key, trials)
	for i := range keys {
		keys[i] = behaviour.NewKey()
	}
	if first {
		if err := s.load(ctx, gated, policy(keys)); err != nil {
			return err
		}
		if s.Report, err = reports(ctx, gated); err != nil {
			return err
		}
	}
	if err := gated.Apply(ctx, policy(keys)); err != nil {
		return err
	}
	inert, err := testbed.Start(ctx, testbed.Options{Module: module})
	if err != nil {
		return err
	}
	defer inert.Close()
	if err := inert.Apply(ctx, behaviour.Policy("1")); err != nil {
		return err
	}
	gated.Discard(true)
	empty, err := startEmpty(ctx, dir)
	if err != nil {
		return err
	}
	defer empty.Close()
	ordinary := func(int) string { return behaviour.OrdinaryTrace.String() }
	ofTrials := func(i int) string { return tfi.NewTraceID(keys[i/s.Connections%trials], uint64(i)).String() }
	send := func(bed *testbed.Bed, trace func(int) string, inbound bool) func(context.Context) error {
		return func(ctx context.Context) error {
			addr := bed.Outbound
			if inbound {
				addr = bed.Inbound
			}
			return send(ctx, &load.Run{Addr: addr, Connections: s.Connections, Requests: s.Requests, Trace: trace})
		}
	}
	err = s.cpu(ctx, []variant{
		{Name: "bare Envoy", run: send(bare, ordinary, false), pid: bare.Process.Pid},
		{Name: "place for the gate, no campaign", run: send(idle, ordinary, false), pid: idle.Process.Pid, BoundPercent: ordinaryBound},
		{Name: "campaign runs, traffic of no trial", run: send(gated, ordinary, false), pid: gated.Process.Pid, BoundPercent: ordinaryBound},
		{Name: "in an empty filter: what wasm costs", run: send(empty, ofTrials, false), pid: empty.Process.Pid},
		{Name: "in the filter, key unknown", run: send(inert, ofTrials, false), pid: inert.Process.Pid},
		{Name: "trial's request, caller's side, everything on", run: send(gated, ofTrials, false), pid: gated.Process.Pid, BoundPercent: trialBound},
		{Name: "trial's request, callee's side, everything on", run: send(gated, ofTrials, true), pid: gated.Process.Pid, BoundPercent: trialBound},
	})
	if err != nil || !last {
		return err
	}
	return s.memory(bare, idle, gated)
}

func send(ctx context.Context, r *load.Run) error {
	result := r.Do(ctx)
	if result.Failed() > 0 {
		return fmt.Errorf("%d of %d requests failed: %v, %w", result.Failed(), result.Requests, result.ByStatus, result.First)
	}
	return ctx.Err()
}

// startEmpty starts a bed with a filter that does nothing.
func startEmpty(ctx context.Context, dir string) (*testbed.Bed, error) {
	module := filepath.Join(dir, "empty.wasm")
	if err := os.WriteFile(module, emptyFilter(), 0o600); err != nil {
		return nil, err
	}
	bed, err := testbed.Start(ctx, testbed.Options{Module: module})
	if err != nil {
		return nil, err
	}
	if err := bed.Apply(ctx, behaviour.Policy("1")); err != nil {
		bed.Close()
		return nil, err
	}
	return bed, nil
}

// policy has everything on: guards that are judged and do not hold, evidence, reports.
func policy(keys []tfi.Key) *tfiv1.Policy {
	var activations []*tfiv1.Activation
	for _, k := range keys {
		var tfics []*tfiv1.Tfic
		for i, api := range []string{"GET /items", "GET /prices", "GET /stock"} {
			tfics = append(tfics, &tfiv1.Tfic{
				Id:     "t" + strconv.Itoa(i),
				Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: api, Phase: tfiv1.Phase_PHASE_RESP},
				Guard:  after(api, 1<<30),
				Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
			}, &tfiv1.Tfic{
				Id:     "s" + strconv.Itoa(i),
				Target: &tfiv1.StaticConfiguration{Callee: behaviour.Service, Api: api, Phase: tfiv1.Phase_PHASE_RESP, Placement: tfiv1.Placement_PLACEMENT_CALLEE},
				Guard:  after(api, 1<<30),
				Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
			})
		}
		activations = append(activations, behaviour.Activation(k, time.Hour, tfics...))
	}
	return behaviour.Policy("1", activations...)
}

func after(api string, n uint32) *tfiv1.Guard {
	all := &tfiv1.AllOf{}
	for _, role := range []tfiv1.Role{tfiv1.Role_ROLE_CLIENT, tfiv1.Role_ROLE_SERVER} {
		peer := behaviour.Peer
		if role == tfiv1.Role_ROLE_SERVER {
			peer = ""
		}
		all.Guards = append(all.Guards, &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Count: n, Event: &tfiv1.EventPredicate{
			Op: &tfiv1.Op{Observer: behaviour.Service, Role: role, Peer: peer, Api: api, Phase: tfiv1.Phase_PHASE_RESP},
		}}}})
	}
	return &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: all}}}}
}

// cpu measures the variants in turn, round by round, so that whatever else the
// machine does meets them all.
func (s *summary) cpu(ctx context.Context, variants []variant) error {
	if s.Variants == nil {
		s.Variants = slices.Clone(variants)
	}
	for round := range s.Rounds + 1 {
		for i := range variants {
			i = (i + round) % len(variants)
			v := &variants[i]
			before, err := cpuTime(v.pid())
			if err != nil {
				return err
			}
			if err := v.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", v.Name, err)
			}
			after, err := cpuTime(v.pid())
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				s.Variants[i].rounds = append(s.Variants[i].rounds, float64(after-before)/1e3/float64(s.Requests))
			}
		}
	}
	return nil
}

// conclude compares the rounds of all generations.
func (s *summary) conclude() {
	base := s.Variants[0].rounds
	for i := range s.Variants {
		v := &s.Variants[i]
		extra := make([]float64, len(base))
		for r := range base {
			extra[r] = 100 * (v.rounds[r]/base[r] - 1)
		}
		v.CPUMicros, v.ExtraPercent = median(v.rounds), median(extra)
		v.QuietPercent = 100 * (quiet(v.rounds)/quiet(base) - 1)
		v.ExtraMin, v.ExtraMax = slices.Min(extra), slices.Max(extra)
		s.OK = s.OK && (v.BoundPercent == 0 || v.ExtraPercent <= v.BoundPercent)
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}

// quiet is a value that a tenth of x is below.
func quiet(x []float64) float64 { return slices.Sorted(slices.Values(x))[len(x)/10] }

// cpuTime is the time that all threads of a process have run, in nanoseconds:
// finer than the ticks of /proc/PID/stat.
func cpuTime(pid int) (sum int64, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (s *summary) memory(bare, idle, gated *testbed.Bed) error {
	for _, m := range []struct {
		name string
		bed  *testbed.Bed
	}{{"bare Envoy", bare}, {"place for the gate, no campaign ever", idle}, {"with the plugin, after all rounds", gated}} {
		u, err := m.bed.Process.Usage()
		if err != nil {
			return err
		}
		s.Memory = append(s.Memory, memory{Name: m.name, MB: float64(u.RSS) / (1 << 20)})
	}
	s.OK = s.OK && s.Memory[1].MB <= s.Memory[0].MB*(1+memoryBound/100.)
	return nil
}

// load measures what other requests feel while the plugin is loaded.
func (s *summary) load(ctx context.Context, bed *testbed.Bed, p *tfiv1.Policy) error {
	other := func(ctx context.Context) *load.Result {
		return (&load.Run{
			Addr: bed.Outbound, Connections: 4, Every: 5 * time.Millisecond,
			Trace: func(int) string { return behaviour.OrdinaryTrace.String() },
		}).Do(ctx)
	}
	quiet, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	s.BeforeLoad = millis(other(quiet))

	busy, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := time.Now()
	applied := make(chan error, 1)
	go func() {
		applied <- bed.Apply(ctx, p)
		cancel()
	}()
	r := other(busy)
	s.LoadSeconds = time.Since(begun).Seconds()
	if r.Failed() > 0 {
		return fmt.Errorf("%d requests failed while the plugin was loaded: %w", r.Failed(), r.First)
	}
	s.DuringLoad = millis(r)
	return <-applied
}

func millis(r *load.Result) latency {
	ms := func(q float64) float64 { return float64(r.Quantile(q).Microseconds()) / 1e3 }
	return latency{P50: ms(.5), P99: ms(.99), Max: ms(1)}
}

// reports measures how long a call's span takes to the collector.
func reports(ctx context.Context, bed *testbed.Bed) (latency, error) {
	key := behaviour.NewKey()
	if err := bed.Apply(ctx, behaviour.Policy("r", behaviour.Activation(key, time.Minute))); err != nil {
		return latency{}, err
	}
	r := &load.Result{}
	for n := range 200 {
		call := behaviour.Call{
			Outbound: true,
			Request:  behaviour.Message{Method: "GET", Path: "/items"},
			Answer:   behaviour.Message{Status: 200, Chunks: []string{"x"}},
		}
		if _, err := bed.Do(ctx, &call, tfi.NewTraceID(key, 1)); err != nil {
			return latency{}, err
		}
		at := time.Now()
		spans := bed.Spans(ctx, key, func(s []behaviour.Span) bool { return calls(s) > n })
		if calls(spans) <= n {
			return latency{}, fmt.Errorf("%d of %d spans came", calls(spans), n+1)
		}
		r.Latencies = append(r.Latencies, time.Since(at))
	}
	slices.Sort(r.Latencies)
	return millis(r), nil
}

func calls(spans []behaviour.Span) (n int) {
	for _, s := range spans {
		if s.Attributes[span.Kind] == "call" {
			n++
		}
	}
	return n
}
