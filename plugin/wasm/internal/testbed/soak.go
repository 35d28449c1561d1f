package testbed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/load"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// SoakOptions of [Soak].
type SoakOptions struct {
	// Requests in all, half inbound and half outbound, over Connections.
	Requests, Connections int
	// PushEvery is the time between two policies.
	PushEvery time.Duration
	// SampleEvery is the time between two readings of memory.
	SampleEvery time.Duration
}

// SoakResult is what a soak found.
type SoakResult struct {
	Requests int           `json:"requests"`
	Failed   int           `json:"failed"`
	Pushes   int           `json:"pushes"`
	Took     time.Duration `json:"tookNs"`
	// RSS in bytes, in order of time.
	RSS []int64 `json:"rssBytes"`
	// Early and Late are medians of the second and of the last quarter of RSS.
	Early int64 `json:"earlyBytes"`
	Late  int64 `json:"lateBytes"`

	// ByStatus counts answers.
	ByStatus map[int]int `json:"byStatus"`

	first error
}

// Growth bounds how much Late may lie over Early: pushes alone cost some memory
// that levels off.
const soakGrowth = 16 << 20

// Err says what was wrong.
func (r *SoakResult) Err() error {
	var errs []error
	if r.Failed > 0 {
		errs = append(errs, fmt.Errorf("%d of %d requests failed (%v), the first with: %w", r.Failed, r.Requests, r.ByStatus, r.first))
	}
	if r.Late > r.Early+soakGrowth {
		errs = append(errs, fmt.Errorf("memory grew from %d to %d MB", r.Early>>20, r.Late>>20))
	}
	return errors.Join(errs...)
}

// soakTrials is how many trials a policy has; each push ends the oldest.
const soakTrials = 32

// Soak sends requests of trials while policies are pushed. A few are delayed.
func Soak(ctx context.Context, bed *Bed, o SoakOptions) (*SoakResult, error) {
	bed.Discard(true)
	defer bed.Discard(false)
	var mu sync.Mutex
	var keys []tfi.Key
	for range soakTrials {
		keys = append(keys, behaviour.NewKey())
	}
	policy := func(version int) *tfiv1.Policy {
		mu.Lock()
		defer mu.Unlock()
		var activations []*tfiv1.Activation
		for _, k := range keys {
			activations = append(activations, behaviour.Activation(k, time.Hour, soakFaults()...))
		}
		return behaviour.Policy(fmt.Sprint(version), activations...)
	}
	if err := bed.Apply(ctx, policy(0)); err != nil {
		return nil, err
	}
	trace := func(i int) string {
		mu.Lock()
		k := keys[(i/7)%len(keys)]
		mu.Unlock()
		return tfi.NewTraceID(k, uint64(i)).String()
	}

	r := &SoakResult{ByStatus: map[int]int{}}
	begun := time.Now()
	stop := make(chan struct{})
	var background sync.WaitGroup
	var pushErr, sampleErr error
	background.Go(func() {
		pushErr = every(ctx, stop, o.PushEvery, func() error {
			mu.Lock()
			keys = append(slices.Clone(keys[1:]), behaviour.NewKey())
			mu.Unlock()
			r.Pushes++
			_, err := bed.Push(policy(r.Pushes))
			return err
		})
	})
	background.Go(func() {
		sampleErr = every(ctx, stop, o.SampleEvery, func() error {
			u, err := bed.Process.Usage()
			r.RSS = append(r.RSS, u.RSS)
			return err
		})
	})
	var mine sync.WaitGroup
	results := make([]*load.Result, 2)
	for i, addr := range []string{bed.Outbound, bed.Inbound} {
		mine.Go(func() {
			results[i] = (&load.Run{Addr: addr, Connections: o.Connections / 2, Requests: o.Requests / 2, Trace: trace}).Do(ctx)
		})
	}
	mine.Wait()
	close(stop)
	background.Wait()
	r.Took = time.Since(begun)
	for _, l := range results {
		r.Requests += l.Requests
		r.Failed += l.Failed()
		if r.first == nil {
			r.first = l.First
		}
		for status, n := range l.ByStatus {
			r.ByStatus[status] += n
			if status != 200 && r.first == nil {
				r.first = fmt.Errorf("status %d, %d times", status, n)
			}
		}
	}
	if n := len(r.RSS); n >= 8 {
		r.Early, r.Late = middle(r.RSS[n/4:n/2]), middle(r.RSS[3*n/4:])
	}
	return r, errors.Join(ctx.Err(), pushErr, sampleErr)
}

// soakFaults are judged at every request; one delays a little, now and then.
func soakFaults() []*tfiv1.Tfic {
	delay := &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(20 * time.Millisecond)}}}}
	abort := &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}
	at := func(phase tfiv1.Phase) *tfiv1.StaticConfiguration {
		return &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "GET /items", Phase: phase}
	}
	never := &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Count: 1 << 30, Event: &tfiv1.EventPredicate{
		Op: &tfiv1.Op{Observer: behaviour.Service, Role: tfiv1.Role_ROLE_CLIENT, Peer: behaviour.Peer, Api: "GET /items", Phase: tfiv1.Phase_PHASE_RESP},
	}}}}}}
	return []*tfiv1.Tfic{
		{Id: "slow", Target: at(tfiv1.Phase_PHASE_RESP), Fault: delay},
		{Id: "never", Target: at(tfiv1.Phase_PHASE_REQ), Fault: abort, Guard: never},
	}
}

// every calls f again and again until stop.
func every(ctx context.Context, stop <-chan struct{}, period time.Duration, f func() error) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case <-tick.C:
			if err := f(); err != nil {
				return err
			}
		}
	}
}

func middle(x []int64) int64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
