package workload

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"
)

// proxy is the forward proxy, on the loopback interface, of one run of a command. It
// marks each request, and changes nothing else of it. TLS goes through untouched.
type proxy struct {
	trace    *traceContext
	listener net.Listener
	server   *http.Server
	forward  *httputil.ReverseProxy
	done     chan struct{}

	mu       sync.Mutex
	seen     []TraceID
	unmarked Unmarked
	tunnels  map[net.Conn]struct{} // nil once it has been stopped
	wg       sync.WaitGroup
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
		Rewrite:       p.rewrite,
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
// which requests could not be marked.
func (p *proxy) stop() ([]TraceID, Unmarked) {
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
	return p.seen, p.unmarked
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

// rewrite undoes what a reverse proxy changes of a request, and marks it.
func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	// The path too goes on as it was written, where that is more than one way to write it.
	if _, rest, ok := strings.Cut(r.In.RequestURI, "://"); ok {
		if at := strings.IndexAny(rest, "/?"); at >= 0 && rest[at] == '/' && !strings.HasPrefix(rest[at:], "//") {
			r.Out.URL.Opaque, _, _ = strings.Cut(rest[at:], "?")
		}
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	p.stamp(r.Out.Header)
}

func (p *proxy) stamp(h http.Header) {
	s := p.trace.stamp(h)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.marked {
		p.unmarked.Foreign++
	}
	if s.own != (TraceID{}) && !slices.Contains(p.seen, s.own) {
		p.seen = append(p.seen, s.own)
	}
}

func (p *proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.unmarked.Tunnels++
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
