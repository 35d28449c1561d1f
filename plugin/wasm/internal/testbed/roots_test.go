package testbed_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

var switches = regexp.MustCompile(`(?m)^voluntary_ctxt_switches:\s+(\d+)$`)

// wakes is how often a process's threads have gone to sleep so far.
func wakes(t *testing.T, pid int) (n int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads %v, %v", threads, err)
	}
	for _, name := range threads {
		b, err := os.ReadFile(name)
		m := switches.FindSubmatch(b)
		if err != nil || m == nil {
			continue // the thread has ended
		}
		one, _ := strconv.Atoi(string(m[1])) // digits
		n += one
	}
	return n
}

// TestRoots is about Envoy's root contexts, of which each push makes one.
func TestRoots(t *testing.T) {
	bed := start(t, testbed.Options{StreamIdle: time.Second})
	t.Run("retired ones leave no clock", func(t *testing.T) { retiredLeaveNoClock(t, bed) })
	t.Run("Envoy answers a delayed request", func(t *testing.T) { envoyAnswersDelayed(t, bed) })
	t.Run("removal sends reports", func(t *testing.T) { removalSendsReports(t, bed) })
}

// outlive lets a call that is delayed outlive its policy, which end takes away.
func outlive(t *testing.T, bed *testbed.Bed, key tfi.Key, end func()) {
	t.Helper()
	before := max(0, stats(t, bed, "injections.fault.delay"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var delayed sync.WaitGroup
	defer delayed.Wait()
	delayed.Go(func() {
		call := get()
		if seen, err := bed.Do(ctx, &call, tfi.NewTraceID(key, 1)); err != nil || seen.Status != 200 {
			t.Errorf("seen %+v, %v", seen, err)
		}
	})
	eventually(t, "delayed", func() bool { return stats(t, bed, "injections.fault.delay") > before })
	end()
}

// retiredLeaveNoClock: Envoy keeps the timers of root contexts that are gone, so that
// one that still ran would wake it 200 times a second for ever.
func retiredLeaveNoClock(t *testing.T, bed *testbed.Bed) {
	for i := range 3 {
		key := behaviour.NewKey()
		slow := &tfiv1.Tfic{Id: "slow", Target: target(tfiv1.Phase_PHASE_REQ), Fault: delay(500 * time.Millisecond)}
		apply(t, bed, behaviour.Policy(fmt.Sprint(i), behaviour.Activation(key, 0, slow)))
		outlive(t, bed, key, func() { apply(t, bed, behaviour.Policy("next", behaviour.Activation(key, 0))) })
	}
	const idle = 150 // wakes in a second of an Envoy that has nothing to do, generously
	eventually(t, "Envoy sleeps", func() bool {
		before := wakes(t, bed.Process.Pid())
		time.Sleep(time.Second) // what is measured
		n := wakes(t, bed.Process.Pid()) - before
		t.Logf("%d wakes in a second", n)
		return n < idle
	})
}

// removalSendsReports: a stream that outlives the filter is reported when it ends, by a
// root context that ends with it.
func removalSendsReports(t *testing.T, bed *testbed.Bed) {
	key := behaviour.NewKey()
	slow := &tfiv1.Tfic{Id: "slow", Target: target(tfiv1.Phase_PHASE_REQ), Fault: delay(800 * time.Millisecond)}
	apply(t, bed, behaviour.Policy("last", behaviour.Activation(key, 0, slow)))
	outlive(t, bed, key, func() {
		if _, err := bed.Push(nil); err != nil {
			t.Fatal(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	spans := bed.Spans(ctx, key, func(s []behaviour.Span) bool { return count(s, "call") > 0 })
	if n := count(spans, "call"); n != 1 {
		t.Errorf("%d calls are reported, want 1", n)
	}
}

// envoyAnswersDelayed: Envoy gives up a stream whose request is still delayed, and its
// answer is faulted, too.
func envoyAnswersDelayed(t *testing.T, bed *testbed.Bed) {
	key := behaviour.NewKey()
	slow := &tfiv1.Tfic{Id: "slow", Target: target(tfiv1.Phase_PHASE_REQ), Fault: delay(time.Minute)}
	late := &tfiv1.Tfic{Id: "late", Target: target(tfiv1.Phase_PHASE_RESP), Fault: delay(50 * time.Millisecond)}
	apply(t, bed, behaviour.Policy("1", behaviour.Activation(key, 0, slow, late)))
	seen := do(t, bed, get(), key)
	if seen.Called || seen.Status < 400 || seen.Elapsed < 1050*time.Millisecond {
		t.Errorf("seen %+v; want Envoy's own answer, late", seen)
	}
	spans := bed.Spans(t.Context(), key, func(s []behaviour.Span) bool { return count(s, "call") > 0 })
	if n := count(spans, "call"); n != 1 || spans[len(spans)-1].Attributes[span.Made] != true {
		t.Errorf("spans %v; want a made answer", spans)
	}
	if seen := do(t, bed, get(), tfi.Key{1}); seen.Status != 200 {
		t.Errorf("afterwards: status %d", seen.Status)
	}
	eventually(t, "no stream is paused", func() bool { return stats(t, bed, "paused_streams") == 0 })
}
