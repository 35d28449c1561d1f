package demo

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// Ordinary is the traffic of clients that take no part in any campaign.
type Ordinary struct {
	// Clients is how many send at the same time, each its next request as soon as
	// it has its answer; 0 means 16.
	Clients int
	// Requests is how many are sent in all; 0: until the context ends.
	Requests int
}

// Traffic is what ordinary clients have seen.
type Traffic struct {
	// Requests by service, and how many of all went wrong.
	Requests map[string]int
	Failed   int
	// Failures are the first of them, as text.
	Failures []string
	// Latency by service.
	Latency map[string]Latency
}

// Latency of the requests to a service.
type Latency struct{ P50, P99, Max time.Duration }

// Total is the number of all requests.
func (t *Traffic) Total() int {
	n := 0
	for _, of := range t.Requests {
		n += of
	}
	return n
}

// ordinaryRequest is one kind of them.
type ordinaryRequest struct {
	name string
	url  string
	// Every good answer has this status, and this in its body.
	status int
	wants  string
}

const (
	defaultClients = 16
	// failuresKept bounds Traffic.Failures.
	failuresKept = 10
	// dispatchEvery is every how many requests one goes to the frontend.
	dispatchEvery = 4
)

// Run sends ordinary requests through the sidecars until all are sent or ctx
// ends: to HotROD's customer and route services directly, and to the frontend.
// Each has a trace context of its own.
func (o Ordinary) Run(ctx context.Context, t *topology.Topology) (*Traffic, error) {
	kinds, err := ordinaryRequests(t)
	if err != nil {
		return nil, err
	}
	clients := o.Clients
	if clients == 0 {
		clients = defaultClients
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	r := &ordinaryRun{left: o.Requests, bounded: o.Requests > 0, times: map[string][]time.Duration{}}
	r.out.Requests = map[string]int{}
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n := i; r.next(ctx); n++ {
				kind := kinds[n%2]
				if n%dispatchEvery == dispatchEvery-1 {
					kind = kinds[2]
				}
				began := time.Now()
				err := kind.send(ctx, client)
				if ctx.Err() != nil {
					return // cut off: says nothing
				}
				r.judge(kind.name, time.Since(began), err)
			}
		})
	}
	wg.Wait()
	return r.result(), nil
}

func ordinaryRequests(t *topology.Topology) ([]ordinaryRequest, error) {
	var kinds []ordinaryRequest
	for _, k := range []ordinaryRequest{
		{name: customer, url: "/customer?customer=392", status: http.StatusOK, wants: `"Location"`},
		{name: route, url: "/route?pickup=1,2&dropoff=3,4", status: http.StatusOK, wants: `"ETA"`},
		// Of a customer that does not exist, so that driver is not called: the Redis
		// which that pretends to have lets every fifth look-up fail, whosever it is, and
		// gives up after three in a row. Dispatches that overlap fail by that, with
		// nothing injected, about one in twenty, and trials with them.
		{name: frontend, url: "/dispatch?customer=999", status: http.StatusInternalServerError, wants: "invalid customer ID"},
	} {
		s, ok := t.Service(k.name)
		if !ok {
			return nil, fmt.Errorf("no service %s", k.name)
		}
		k.url = "http://" + s.Inbound + k.url
		kinds = append(kinds, k)
	}
	return kinds, nil
}

var errAnswer = errors.New("wrong answer")

func (k ordinaryRequest) send(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("traceparent", ordinaryTraceparent())
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != k.status || !strings.Contains(string(body), k.wants) {
		return fmt.Errorf("%w: %s: %.100s", errAnswer, resp.Status, body)
	}
	for name := range resp.Header {
		if strings.HasPrefix(strings.ToLower(name), ficPrefix) {
			return fmt.Errorf("%w: it has the header %s", errAnswer, name)
		}
	}
	return nil
}

// ordinaryTraceparent is a new one, of no trial.
func ordinaryTraceparent() string {
	var id [24]byte
	for i := range id {
		id[i] = byte(rand.Uint32()) //nolint:gosec // no secret
	}
	id[0] |= 0x80 // never the magic of a trial
	return "00-" + hex.EncodeToString(id[:16]) + "-" + hex.EncodeToString(id[16:]) + "-00"
}

// ordinaryRun collects what the clients of a run see.
type ordinaryRun struct {
	mu      sync.Mutex
	left    int
	bounded bool
	times   map[string][]time.Duration
	out     Traffic
}

func (r *ordinaryRun) next(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil || r.bounded && r.left == 0 {
		return false
	}
	r.left--
	return true
}

func (r *ordinaryRun) judge(name string, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Requests[name]++
	r.times[name] = append(r.times[name], took)
	if err == nil {
		return
	}
	r.out.Failed++
	if len(r.out.Failures) < failuresKept {
		r.out.Failures = append(r.out.Failures, name+": "+err.Error())
	}
}

func (r *ordinaryRun) result() *Traffic {
	r.out.Latency = map[string]Latency{}
	for name, times := range r.times {
		slices.Sort(times)
		r.out.Latency[name] = Latency{
			P50: times[len(times)/2],
			P99: times[len(times)*99/100],
			Max: times[len(times)-1],
		}
	}
	return &r.out
}
