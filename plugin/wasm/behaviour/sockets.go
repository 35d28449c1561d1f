package behaviour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// UpstreamHeader tells a sidecar's routes which cluster a call goes to: "h1" or
// "h2". To the sidecar it is a header of the application.
const UpstreamHeader = "x-upstream"

// Endpoints are the ends of a sidecar's real connections: its clients, the callee
// behind it, and the collector of its reports.
type Endpoints struct {
	// Inbound and Outbound are the sidecar's listeners (host:port).
	Inbound, Outbound string

	// discard makes the collector throw reports away.
	discard atomic.Bool

	callee, collector         *http.Server
	calleeAddr, collectorAddr string

	mu        sync.Mutex
	exchanges map[string]*exchange
	calls     int
	spans     map[tfi.Key][]Span
	arrived   chan struct{}
	bad       []error
}

// NewEndpoints starts callee and collector on free loopback ports.
func NewEndpoints() (*Endpoints, error) {
	e := &Endpoints{exchanges: map[string]*exchange{}, spans: map[tfi.Key][]Span{}, arrived: make(chan struct{})}
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	e.callee = &http.Server{Handler: http.HandlerFunc(e.serveCall), Protocols: &both, ReadHeaderTimeout: callTimeout}
	e.collector = &http.Server{Handler: http.HandlerFunc(e.serveReport), ReadHeaderTimeout: callTimeout}
	var err error
	if e.calleeAddr, err = listen(e.callee); err != nil {
		return nil, err
	}
	if e.collectorAddr, err = listen(e.collector); err != nil {
		_ = e.callee.Close()
		return nil, err
	}
	return e, nil
}

func listen(s *http.Server) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback, at once
	if err != nil {
		return "", err
	}
	go func() { _ = s.Serve(l) }() // ends with Close
	return l.Addr().String(), nil
}

// Close ends callee and collector.
func (e *Endpoints) Close() error { return errors.Join(e.callee.Close(), e.collector.Close()) }

// Callee is where the sidecar must send calls, in either protocol.
func (e *Endpoints) Callee() string { return e.calleeAddr }

// Collector is where the sidecar must report to, by OTLP over HTTP.
func (e *Endpoints) Collector() string { return e.collectorAddr }

const callHeader = "x-call"

func (e *Endpoints) serveCall(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	x := e.exchanges[r.Header.Get(callHeader)]
	e.mu.Unlock()
	if x == nil {
		_, _ = io.WriteString(w, "plain") // not of the table
		return
	}
	x.serve(w, r)
}

// Discard makes the collector throw reports away, for loads whose spans nobody reads.
func (e *Endpoints) Discard(yes bool) { e.discard.Store(yes) }

func (e *Endpoints) serveReport(w http.ResponseWriter, r *http.Request) {
	if e.discard.Load() {
		_, _ = io.Copy(io.Discard, r.Body) // whatever it is
		return
	}
	b, err := io.ReadAll(r.Body)
	if err == nil && r.URL.Path != "/v1/traces" {
		err = fmt.Errorf("report to %s", r.URL.Path)
	}
	spans, bad := DecodeSpans(b)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err = errors.Join(err, bad); err != nil {
		e.bad = append(e.bad, err)
		w.WriteHeader(http.StatusBadRequest)
	}
	for k, s := range spans {
		e.spans[k] = append(e.spans[k], s...)
	}
	close(e.arrived)
	e.arrived = make(chan struct{})
}

// Spans returns the spans reported for a key; see [Sidecar].
func (e *Endpoints) Spans(ctx context.Context, key tfi.Key, done func([]Span) bool) []Span {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		e.mu.Lock()
		spans, arrived := e.spans[key], e.arrived
		e.mu.Unlock()
		if done(spans) {
			return spans
		}
		select {
		case <-ctx.Done():
			return spans
		case <-arrived:
		}
	}
}

// Bad returns what was wrong with reports.
func (e *Endpoints) Bad() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.bad...)
}

func (e *Endpoints) expect(x *exchange) (id string, forget func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	id = strconv.Itoa(e.calls)
	e.exchanges[id] = x
	return id, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.exchanges, id)
	}
}

// Expect makes the callee answer as c says, for a client of the caller's own,
// until forget is called. The client must send the headers.
func (e *Endpoints) Expect(c *Call, trace tfi.TraceID) (headers map[string]string, forget func()) {
	call := c.withDefaults()
	id, forget := e.expect(newExchange(&call))
	return map[string]string{
		callHeader:     id,
		UpstreamHeader: map[bool]string{false: "h1", true: "h2"}[call.HTTP2],
		"traceparent":  "00-" + trace.String() + "-00f067aa0ba902b7-01",
	}, forget
}

// Do runs a call; see [Sidecar].
func (e *Endpoints) Do(ctx context.Context, c *Call, trace tfi.TraceID) (*Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	x := newExchange(c)
	id, forget := e.expect(x)
	defer forget()

	addr := e.Inbound
	if c.Outbound {
		addr = e.Outbound
	}
	headers := http.Header{}
	for _, h := range c.Request.Headers {
		headers.Set(h.Name, h.Value)
	}
	headers.Set(callHeader, id)
	headers.Set(UpstreamHeader, map[bool]string{false: "h1", true: "h2"}[c.HTTP2])
	headers.Set("traceparent", "00-"+trace.String()+"-00f067aa0ba902b7-01")

	var err error
	begun := time.Now()
	if c.Upgrade {
		err = x.askUpgrade(ctx, addr, headers)
	} else {
		err = x.ask(ctx, addr, headers)
	}
	x.seen.Elapsed = time.Since(begun)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	called := x.seen.Called
	x.mu.Unlock()
	if called {
		if err := x.served.finish(ctx); err != nil {
			return nil, fmt.Errorf("callee does not end: %w", err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	seen := x.seen
	return &seen, nil
}

// ask is the client.
func (x *exchange) ask(ctx context.Context, addr string, headers http.Header) error {
	c := x.call
	var protocols http.Protocols
	protocols.SetHTTP1(!c.HTTP2)
	protocols.SetUnencryptedHTTP2(c.HTTP2)
	// A connection of its own: Go repeats a GET whose reused connection was reset.
	transport := &http.Transport{Protocols: &protocols, DisableCompression: true, ExpectContinueTimeout: callTimeout}
	defer transport.CloseIdleConnections()

	continued := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() { continued = true }})
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if c.LeaveAfter > 0 {
		go x.leaveLater(ctx, leave)
	}
	body, sent := x.requestBody(ctx)
	req, err := http.NewRequestWithContext(ctx, c.Request.Method, "http://"+addr+c.Request.Path, body)
	if err != nil {
		return err
	}
	req.Header = headers
	req.Host = "test"
	if c.Continue {
		req.Header.Set("Expect", "100-continue")
	}
	for _, h := range c.Request.Trailers {
		if req.Trailer == nil {
			req.Trailer = http.Header{}
		}
		req.Trailer.Set(h.Name, h.Value)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		if c.LeaveAfter == 0 && ctx.Err() != nil {
			return err
		}
		x.seen.Broken = true
		leave()
		<-sent
		return nil
	}
	x.seen.Status, x.seen.Headers = resp.StatusCode, sorted(resp.Header)
	text, chunks, err := drain(resp.Body, x.answered)
	_ = resp.Body.Close()
	x.seen.Body, x.seen.Chunks, x.seen.Trailers = text, chunks, sorted(resp.Trailer)
	x.seen.Broken = err != nil
	leave()
	<-sent
	if c.Continue && !continued {
		return errors.New("no 100 (Continue) came")
	}
	return nil
}

// leaveLater makes the client leave: some time after the callee has been called, if it will.
func (x *exchange) leaveLater(ctx context.Context, leave func()) {
	if !x.call.Want.NotCalled {
		select {
		case <-x.called:
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-time.After(x.call.LeaveAfter):
		leave()
	case <-ctx.Done():
	}
}

// requestBody returns the body, and a channel that is closed when all of it has
// been written or it is wanted no more.
func (x *exchange) requestBody(ctx context.Context) (io.Reader, <-chan struct{}) {
	sent := make(chan struct{})
	c := x.call
	if len(c.Request.Chunks) == 0 && len(c.Request.Trailers) == 0 {
		close(sent)
		return http.NoBody, sent
	}
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = r.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer close(sent)
		for i, chunk := range c.Request.Chunks {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
			if c.Lockstep && x.asked.reach(ctx, upTo(c.Request.Chunks, i+1)) != nil {
				return
			}
			if c.Duplex && x.answered.reach(ctx, upTo(c.Answer.Chunks, i+1)) != nil {
				return
			}
		}
		_ = w.Close() // never fails
	}()
	return r, sent
}
