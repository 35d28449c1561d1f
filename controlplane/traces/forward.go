package traces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// ForwarderStats counts what a [Forwarder] has done with spans.
type ForwarderStats struct {
	// Sent spans were accepted by the endpoint; Lost ones were not, or found the
	// queue full.
	Sent, Lost int
	// LastError is why spans were lost last; nil: none were.
	LastError error
}

// Forwarder sends spans on to another OTLP/HTTP endpoint, so that what the
// control plane receives reaches the user's own tracing too. It is best effort:
// it never blocks, and what it cannot send is lost and counted.
type Forwarder struct {
	url    string
	client *http.Client
	queue  chan batch
	stop   chan struct{} // closed by Close
	end    sync.Once
	cancel context.CancelFunc
	done   chan struct{} // closed when run has ended

	mu    sync.Mutex
	stats ForwarderStats
}

// batch is an encoded TracesData, which is wire-equal to an
// ExportTraceServiceRequest.
type batch struct {
	body  []byte
	spans int
}

// forwardQueue is how many batches may wait; exporters send one every few
// seconds, sidecars one every few milliseconds during a trial.
const forwardQueue = 256

// ErrEndpoint says that spans cannot be forwarded to such an address.
var ErrEndpoint = errors.New("no endpoint to forward spans to")

var errQueueFull = errors.New("the endpoint is too slow, the queue is full")

// NewForwarder sends spans to endpoint, an OTLP/HTTP address as
// http://host:4318; without a path it gets /v1/traces. It runs until Close.
//
// Errors: ErrEndpoint.
func NewForwarder(endpoint string) (*Forwarder, error) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%w: %q: an OTLP/HTTP address as http://host:4318 is wanted", ErrEndpoint, endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = pathTraces
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Forwarder{
		url:    u.String(),
		client: &http.Client{Timeout: 10 * time.Second, Transport: http.DefaultTransport.(*http.Transport).Clone()},
		queue:  make(chan batch, forwardQueue),
		stop:   make(chan struct{}),
		cancel: cancel,
		done:   make(chan struct{}),
	}
	go f.run(ctx)
	return f, nil
}

// Add queues a copy of td. It rejects nothing: what is lost is in Stats.
func (f *Forwarder) Add(td *tracev1.TracesData) (rejected int, why string) {
	n := Count(td)
	b, err := proto.Marshal(td)
	if err != nil {
		f.lost(n, err)
		return 0, ""
	}
	select {
	case f.queue <- batch{body: b, spans: n}:
	default:
		f.lost(n, errQueueFull)
	}
	return 0, ""
}

func (f *Forwarder) run(ctx context.Context) {
	defer close(f.done)
	for {
		select {
		case b := <-f.queue:
			f.send(ctx, b)
		case <-f.stop:
			f.drain(ctx)
			return
		}
	}
}

func (f *Forwarder) drain(ctx context.Context) {
	for {
		select {
		case b := <-f.queue:
			f.send(ctx, b)
		default:
			return
		}
	}
}

func (f *Forwarder) send(ctx context.Context, b batch) {
	err := f.post(ctx, b.body)
	if err != nil {
		f.lost(b.spans, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Sent += b.spans
}

func (f *Forwarder) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", typeProto)
	resp, err := f.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// Read what there is, so that the connection can be used again.
	reply, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s: %.200q", f.url, resp.Status, reply)
	}
	return nil
}

func (f *Forwarder) lost(spans int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Lost += spans
	f.stats.LastError = err
}

// Stats returns what was sent and lost so far.
func (f *Forwarder) Stats() ForwarderStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Close sends what is queued, for a second at most, and stops.
func (f *Forwarder) Close() error {
	f.end.Do(func() {
		close(f.stop)
		giveUp := time.AfterFunc(time.Second, f.cancel)
		defer giveUp.Stop()
		<-f.done
		f.cancel()
		f.client.CloseIdleConnections()
	})
	return nil
}
