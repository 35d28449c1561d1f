package workload

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// proxy is the forward proxy, on the loopback interface, of one run of a command. It
// gives each request the trial's trace context in every format in which it has none of its
// own, and marks one that has a traceparent by tracestate. TLS goes through untouched.
type proxy struct {
	trace    *traceContext
	listener net.Listener
	server   *http.Server
	forward  *httputil.ReverseProxy
	done     chan struct{}

	mu        sync.Mutex
	seen      []TraceID
	unstamped int
	tunnels   map[net.Conn]struct{} // nil once it has been stopped
	wg        sync.WaitGroup
}

func startProxy(ctx context.Context, trace *traceContext) (*proxy, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the command's requests: %w", err)
	}
	p := &proxy{
		trace: trace, listener: listener,
		done: make(chan struct{}), tunnels: make(map[net.Conn]struct{}),
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { p.stamp(r.Out.Header) },
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		FlushInterval: -1, // streams must go on streaming
		// A callee that breaks the connection must look broken, not like a 502.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(listener) // ends with http.ErrServerClosed
	}()
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

// stop ends the proxy and returns the traces that the command started itself, and
// how many requests could not be marked.
func (p *proxy) stop() ([]TraceID, int) {
	_ = p.server.Close()
	<-p.done
	p.mu.Lock()
	for conn := range p.tunnels {
		_ = conn.Close()
	}
	p.tunnels = nil
	p.mu.Unlock()
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen, p.unstamped
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		p.tunnel(w, r)
	case !r.URL.IsAbs():
		http.Error(w, "this is a forward proxy: give it an absolute URL", http.StatusBadRequest)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

func (p *proxy) stamp(h http.Header) {
	id, own := parseTraceID(h.Get("traceparent"))
	if !own && p.trace.format.has(topology.FormatW3C) {
		h.Del("traceparent") // it says nothing, and would be passed on
	}
	for _, f := range p.trace.families() {
		if slices.ContainsFunc(f, func(one header) bool { return h.Get(one.name) != "" }) {
			continue
		}
		for _, one := range f {
			h.Set(one.name, one.value)
		}
	}
	key := p.trace.key
	state := p.trace.state()
	if state == "" || own && string(id[2:9]) == string(key[:]) {
		return
	}
	if old := strings.Join(h.Values("tracestate"), ","); old != "" {
		state += "," + old
	}
	h.Set("tracestate", state)
	if !own {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.seen, id) {
		p.seen = append(p.seen, id)
	}
}

// parseTraceID reads the trace id of a W3C traceparent.
func parseTraceID(header string) (TraceID, bool) {
	parts := strings.SplitN(header, "-", 4)
	if len(parts) < 4 || len(parts[1]) != 32 {
		return TraceID{}, false
	}
	var id TraceID
	if _, err := hex.Decode(id[:], []byte(parts[1])); err != nil {
		return TraceID{}, false
	}
	return id, id != TraceID{}
}

func (p *proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.unstamped++
	p.mu.Unlock()
	var dialer net.Dialer
	upstream, err := dialer.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		_ = upstream.Close()
		return
	}
	downstream, buffered, err := hijacker.Hijack()
	if err != nil {
		_ = upstream.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tunnels == nil { // nobody would close it
		_, _ = upstream.Close(), downstream.Close()
		return
	}
	p.tunnels[upstream], p.tunnels[downstream] = struct{}{}, struct{}{}
	p.wg.Go(func() {
		_, _ = io.WriteString(downstream, "HTTP/1.1 200 Connection Established\r\n\r\n")
		pipe(downstream, upstream)
	})
	p.wg.Go(func() { pipe(upstream, buffered) })
}

// pipe copies until either end closes, and then closes the writing half.
func pipe(to net.Conn, from io.Reader) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
}
