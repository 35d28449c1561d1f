package testbed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// target is the call of Peer that these tests fault.
func target(phase tfiv1.Phase) *tfiv1.StaticConfiguration {
	return &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "GET /items", Phase: phase}
}

func delay(d time.Duration) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(d)}}}}
}

func drop(d time.Duration) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(d)}}}
}

var failure = &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 500}}}

// get is a plain call of Peer that succeeds.
func get() behaviour.Call {
	return behaviour.Call{
		Outbound: true,
		Request:  behaviour.Message{Method: "GET", Path: "/items"},
		Answer:   behaviour.Message{Status: 200, Chunks: []string{"fine"}},
	}
}

func apply(t *testing.T, bed *testbed.Bed, p *tfiv1.Policy) {
	t.Helper()
	if err := bed.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, bed *testbed.Bed, c behaviour.Call, key tfi.Key) *behaviour.Seen {
	t.Helper()
	seen, err := bed.Do(t.Context(), &c, tfi.NewTraceID(key, 1))
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// stats returns a statistic of the filter; -1: there is none.
func stats(t *testing.T, bed *testbed.Bed, name string) int64 {
	t.Helper()
	all, err := bed.Process.Stats(t.Context(), regexp.MustCompile(`^wasmcustom\.sequencefi\.`+regexp.QuoteMeta(name)+`$`))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := all["wasmcustom.sequencefi."+name]; ok {
		return v
	}
	return -1
}

// eventually polls a condition that only Envoy can bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within 10 s", what)
		case <-tick.C:
		}
	}
}

// becomes waits until a statistic has a value: the filter tells it a tick later.
func becomes(t *testing.T, bed *testbed.Bed, name string, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s = %d", name, want), func() bool { return stats(t, bed, name) == want })
}

func TestPushWhileStreamsAreDelayed(t *testing.T) {
	bed := share(t)
	key := behaviour.NewKey()
	const streams = 40
	slow := &tfiv1.Tfic{Id: "slow", Target: target(tfiv1.Phase_PHASE_REQ), Fault: delay(600 * time.Millisecond), MaxInjections: streams}
	apply(t, bed, behaviour.Policy("1", behaviour.Activation(key, 0, slow)))
	before := stats(t, bed, "injections.fault.delay")
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			call := get()
			seen, err := bed.Do(t.Context(), &call, tfi.NewTraceID(key, 1))
			if err != nil || seen.Status != 200 || seen.Body != "fine" || seen.Elapsed < 600*time.Millisecond {
				t.Errorf("seen %+v, %v", seen, err)
			}
		})
	}
	eventually(t, "all streams delayed", func() bool { return stats(t, bed, "injections.fault.delay")-before == streams })
	for i := range 5 {
		apply(t, bed, behaviour.Policy(fmt.Sprint(2+i), behaviour.Activation(key, 0, slow)))
	}
	wg.Wait()
	calls := bed.Spans(t.Context(), key, func(s []behaviour.Span) bool { return count(s, "call") >= streams })
	if n := count(calls, "call"); n != streams {
		t.Errorf("%d spans of calls, want %d", n, streams)
	}
	if v := stats(t, bed, "policy_version"); v != 6 {
		t.Errorf("policy_version = %d, want 6", v)
	}
	eventually(t, "no stream is paused", func() bool { return stats(t, bed, "paused_streams") == 0 })
}

func count(spans []behaviour.Span, kind string) (n int) {
	for _, s := range spans {
		if s.Attributes[span.Kind] == kind {
			n++
		}
	}
	return n
}

func TestFullTable(t *testing.T) {
	bed := start(t, testbed.Options{Settings: "table=1x1"})
	first, second := behaviour.NewKey(), behaviour.NewKey()
	fail := func() *tfiv1.Tfic {
		return &tfiv1.Tfic{Id: "f", Target: target(tfiv1.Phase_PHASE_REQ), Fault: failure}
	}
	apply(t, bed, behaviour.Policy("1", behaviour.Activation(first, 0, fail()), behaviour.Activation(second, 0, fail())))
	if seen := do(t, bed, get(), first); seen.Status != 500 {
		t.Errorf("first trial: status %d, want 500", seen.Status)
	}
	seen := do(t, bed, get(), second)
	if seen.Status != 200 || seen.Body != "fine" {
		t.Errorf("second trial: status %d, body %q; want it untouched", seen.Status, seen.Body)
	}
	spans := bed.Spans(t.Context(), second, func(s []behaviour.Span) bool { return len(s) > 0 })
	if len(spans) != 1 || spans[0].Attributes[span.Problem] != "table_full" {
		t.Errorf("spans %v, want the problem table_full", spans)
	}
	becomes(t, bed, "table_full", 1)
}

func TestUnreadablePolicy(t *testing.T) {
	bed := share(t)
	push := func(b []byte) {
		t.Helper()
		n, err := bed.PushRaw(b)
		if err == nil {
			err = bed.Settle(t.Context(), n)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	key := behaviour.NewKey()
	before := stats(t, bed, "bad_policies")
	good := behaviour.Policy("1", behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "f", Target: target(tfiv1.Phase_PHASE_REQ), Fault: failure, MaxInjections: 9,
	}))
	apply(t, bed, good)
	if seen := do(t, bed, get(), key); seen.Status != 500 {
		t.Errorf("good policy: status %d, want 500", seen.Status)
	}
	push([]byte{0xff, 1, 2, 3})
	if seen := do(t, bed, get(), key); seen.Status != 500 {
		t.Errorf("the last good policy does not stay: status %d", seen.Status)
	}
	eventually(t, "bad_policies counts", func() bool { return stats(t, bed, "bad_policies") > before })
	spans := bed.Spans(t.Context(), tfi.Key{}, func(s []behaviour.Span) bool { return len(s) > 0 })
	if len(spans) == 0 || spans[0].Attributes[span.Problem] != "bad_policy" {
		t.Errorf("spans %v, want the problem bad_policy", spans)
	}
}

func TestPanics(t *testing.T) {
	crashing, err := testbed.Build(t.Context(), t.TempDir(), "crashtest")
	if err != nil {
		t.Fatal(err)
	}
	bed := start(t, testbed.Options{Module: crashing, Settings: "hold=20ms"})
	for _, c := range []struct {
		name, where string
		phase       tfiv1.Phase
		fault       *tfiv1.Fault // nil: none
		chunks      []string
		lockstep    bool
		broken      bool // an answer of which something is gone
	}{
		{"request", "request", 0, nil, []string{"fine"}, false, false},
		{"answer", "answer", 0, nil, []string{"fine"}, false, false},
		{"body", "body", 0, nil, []string{"fine"}, false, false},
		{"request that was just delayed", "paused", tfiv1.Phase_PHASE_REQ, delay(50 * time.Millisecond), []string{"fine"}, false, false},
		{"delayed request", "timer", tfiv1.Phase_PHASE_REQ, delay(50 * time.Millisecond), []string{"fine"}, false, false},
		{"dropped request", "timer", tfiv1.Phase_PHASE_REQ, drop(50 * time.Millisecond), []string{"fine"}, false, false},
		{"answer that was just held", "paused", tfiv1.Phase_PHASE_RESP, failure, []string{"fi", "ne"}, true, false},
		{"delayed answer", "timer", tfiv1.Phase_PHASE_RESP, delay(50 * time.Millisecond), []string{"fine"}, false, false},
		{"held answer", "timer", tfiv1.Phase_PHASE_RESP, failure, []string{"fi", "ne"}, true, false},
		{"answer being thrown away", "discarding", tfiv1.Phase_PHASE_RESP, failure, []string{strings.Repeat("x", 60<<10), strings.Repeat("y", 200<<10)}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := behaviour.NewKey()
			var faults []*tfiv1.Tfic
			if c.fault != nil {
				f := &tfiv1.Tfic{
					Id: "f", Target: target(c.phase), Fault: c.fault, MaxInjections: 100,
					AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
				}
				f.Target.Api = "GET /crash/" + c.where
				faults = append(faults, f)
			}
			apply(t, bed, behaviour.Policy("p-"+key.String(), behaviour.Activation(key, 0, faults...)))
			before := max(0, stats(t, bed, "internal_errors"))
			const times = 5
			for range times {
				call := get()
				call.Request.Path = "/crash/" + c.where
				call.Answer.Chunks, call.Lockstep = c.chunks, c.lockstep
				seen := do(t, bed, call, key)
				if seen.Broken != c.broken || !c.broken && (seen.Status != 200 || seen.Body != strings.Join(c.chunks, "")) {
					t.Errorf("status %d, body of %d bytes, broken %v", seen.Status, len(seen.Body), seen.Broken)
				}
			}
			becomes(t, bed, "internal_errors", before+times)
			eventually(t, "no stream is paused", func() bool { return stats(t, bed, "paused_streams") == 0 })
			if seen := do(t, bed, get(), key); seen.Status != 200 {
				t.Errorf("afterwards: status %d", seen.Status)
			}
		})
	}
}

func TestLifetimeOutlivesPushes(t *testing.T) {
	bed := share(t)
	key := behaviour.NewKey()
	policy := func(version string) *tfiv1.Policy {
		return behaviour.Policy(version, behaviour.Activation(key, 2*time.Second, &tfiv1.Tfic{
			Id: "f", Target: target(tfiv1.Phase_PHASE_REQ), Fault: failure, MaxInjections: 1e6,
		}))
	}
	apply(t, bed, policy("1"))
	begun := time.Now()
	if seen := do(t, bed, get(), key); seen.Status != 500 {
		t.Fatalf("status %d, want 500", seen.Status)
	}
	n := 1
	eventually(t, "expired in spite of pushes", func() bool {
		n++
		apply(t, bed, policy(fmt.Sprint(n)))
		return do(t, bed, get(), key).Status == 200
	})
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("lived %v", took)
	}
	eventually(t, "expired counts", func() bool { return stats(t, bed, "expired") > 0 })
}

func TestTrialEnd(t *testing.T) {
	bed := share(t)
	key, other := behaviour.NewKey(), behaviour.NewKey()
	apply(t, bed, behaviour.Policy("1", behaviour.Activation(key, 0)))
	for range 5 {
		do(t, bed, get(), key)
	}
	apply(t, bed, behaviour.Policy("2", behaviour.Activation(other, 0)))
	spans := bed.Spans(t.Context(), key, func(s []behaviour.Span) bool { return count(s, "trial_end") > 0 })
	if n := count(spans, "trial_end"); n != 1 {
		t.Fatalf("%d ends, want 1", n)
	}
	for _, s := range spans {
		// Request, answer and delivery of each call.
		if s.Attributes[span.Kind] == "trial_end" && s.Attributes[span.Events] != int64(15) {
			t.Errorf("events %v, want 15", s.Attributes[span.Events])
		}
	}
}

func TestStalledAnswerIsLetGo(t *testing.T) {
	bed := start(t, testbed.Options{Settings: "hold=300ms"})
	key := behaviour.NewKey()
	// With no good policy the filter is inert.
	if n, err := bed.PushRaw([]byte("this is no policy")); err != nil || bed.Settle(t.Context(), n) != nil {
		t.Fatalf("an unreadable policy is refused: %v", err)
	}
	if seen := do(t, bed, get(), key); seen.Status != 200 {
		t.Errorf("inert: status %d", seen.Status)
	}
	apply(t, bed, behaviour.Policy("1", behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "f", Target: target(tfiv1.Phase_PHASE_RESP), Fault: failure, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
	})))
	// In lockstep the callee sends its second chunk when the client has the first.
	call := get()
	call.Lockstep = true
	call.Answer.Chunks = []string{"slow", "ly"}
	seen := do(t, bed, call, key)
	if seen.Status != 200 || seen.Body != "slowly" || seen.Elapsed < 300*time.Millisecond {
		t.Errorf("seen %+v; want the answer as it was, after the hold", seen)
	}
	spans := bed.Spans(t.Context(), key, func(s []behaviour.Span) bool { return count(s, "call") > 0 })
	if last := spans[len(spans)-1]; last.Attributes[span.LetGo] != true || last.Attributes[span.DeliveredSeq] == nil {
		t.Errorf("span %v; want let go and delivered", last.Attributes)
	}
	becomes(t, bed, "injections_let_go", 1)
}

// TestOneFires shows that workers share one state: of many calls at once exactly
// the 100th is faulted.
func TestOneFires(t *testing.T) {
	bed := share(t)
	key := behaviour.NewKey()
	f := &tfiv1.Tfic{Id: "f", Target: target(tfiv1.Phase_PHASE_REQ), Fault: failure}
	f.Target.K, f.Target.EnforceK = 100, true
	apply(t, bed, behaviour.Policy("1", behaviour.Activation(key, 0, f)))
	before := stats(t, bed, "events")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	t.Cleanup(client.CloseIdleConnections)
	var wg sync.WaitGroup
	var faulted atomic.Int64
	for range 16 {
		wg.Go(func() {
			for range 25 {
				status, err := plain(t.Context(), client, bed.Outbound, key)
				if err != nil {
					t.Error(err)
				}
				if status == 500 {
					faulted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := faulted.Load(); n != 1 {
		t.Errorf("%d of 400 calls were faulted, want 1", n)
	}
	becomes(t, bed, "events", before+400*3-2)
}

// plain sends one request of a trial over a kept connection.
func plain(ctx context.Context, client *http.Client, addr string, key tfi.Key) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/items", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("traceparent", "00-"+tfi.NewTraceID(key, 7).String()+"-00f067aa0ba902b7-01")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestMetricsInPrometheus(t *testing.T) {
	bed := share(t)
	key := behaviour.NewKey()
	apply(t, bed, behaviour.Policy("17", behaviour.Activation(key, 0, &tfiv1.Tfic{Id: "f", Target: target(tfiv1.Phase_PHASE_REQ), Fault: failure})))
	do(t, bed, get(), key)
	bed.Spans(t.Context(), key, func(s []behaviour.Span) bool { return count(s, "call") > 0 })
	eventually(t, "counted", func() bool { return stats(t, bed, "injections.fault.error") > 0 })
	text, err := bed.Process.Get(t.Context(), "/stats/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`sequencefi_injections{fault="delay"} \d+`,
		`sequencefi_injections{fault="error"} [1-9]\d*`,
		`sequencefi_injections{fault="abort"} \d+`,
		`sequencefi_injections{fault="drop"} \d+`,
		`sequencefi_events{} [1-9]\d*`,
		`sequencefi_matches{} [1-9]\d*`,
		`sequencefi_spans{} [1-9]\d*`,
		`sequencefi_policy_version{} 17`,
		`sequencefi_activations{} 1`,
		`sequencefi_table_full{} 0`,
		`sequencefi_export_errors{} \d+`,
		`sequencefi_evidence_dropped{} \d+`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).Match(text) {
			t.Errorf("no line %q", line)
		}
	}
	if t.Failed() {
		for line := range strings.SplitSeq(string(text), "\n") {
			if strings.Contains(line, "sequencefi") {
				t.Log(line)
			}
		}
	}
}

func TestRemovalFreesTheVMs(t *testing.T) {
	bed := share(t)
	vms := func() int64 {
		n, err := bed.Process.VMs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	key := behaviour.NewKey()
	apply(t, bed, behaviour.Policy("1", behaviour.Activation(key, 0)))
	do(t, bed, get(), key)
	if n := vms(); n == 0 {
		t.Error("no VM while a policy is there")
	}
	if _, err := bed.Push(nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "VMs freed", func() bool { return vms() == 0 })
	if seen := do(t, bed, get(), key); seen.Status != 200 {
		t.Errorf("status %d", seen.Status)
	}
}

func TestWrongModuleIsRefused(t *testing.T) {
	bed := start(t, testbed.Options{Module: "/nonexistent.wasm"})
	if n, err := bed.Process.VMs(t.Context()); n != 0 || err != nil {
		t.Errorf("%d VMs before the first push, %v", n, err)
	}
	err := bed.Apply(t.Context(), behaviour.Policy("1"))
	if !errors.Is(err, testbed.ErrNACK) {
		t.Errorf("error %v, want ErrNACK", err)
	}
	if seen := do(t, bed, get(), behaviour.NewKey()); seen.Status != 200 {
		t.Errorf("status %d", seen.Status)
	}
}
