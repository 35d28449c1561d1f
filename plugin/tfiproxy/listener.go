package tfiproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// listener is one port.
type listener struct {
	proxy *Proxy
	cfg   *Listener
	tcp   *net.TCPListener
	open  atomic.Int64
	// names of addresses, for redirected connections.
	names map[string]string
	// tls is nil where neither end is encrypted.
	tls  atomic.Pointer[tlsFiles]
	told atomic.Pointer[string] // the error logged last; see tell
}

func listen(p *Proxy, cfg *Listener, path string) (*listener, error) {
	var secrets *tlsFiles
	if cfg.TLS != nil || cfg.UpstreamTLS != nil {
		var err error
		if secrets, err = loadTLS(cfg, path); err != nil {
			return nil, err
		}
	}
	tcp, err := net.Listen("tcp", cfg.Listen) //nolint:noctx // at once
	if err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	l := &listener{proxy: p, cfg: cfg, tcp: tcp.(*net.TCPListener), names: map[string]string{}}
	for name, address := range p.cfg.Clusters {
		l.names[address] = name
	}
	l.tls.Store(secrets)
	return l, nil
}

// accept takes connections until the port is closed.
func (l *listener) accept() {
	p := l.proxy
	for {
		tcp, err := l.tcp.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, as a rule: some will be free soon.
			p.log.Warn("accept", "listen", l.cfg.Listen, "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-p.drainNow:
			}
			continue
		}
		if l.open.Add(1) > int64(p.cfg.Limits.Connections) {
			l.open.Add(-1)
			p.metrics.inc(metricRefused)
			_ = tcp.Close() // it has not been used
			continue
		}
		p.metrics.inc(metricConnections)
		p.metrics.open.Add(1)
		p.busy.Add(1)
		go l.serve(tcp)
	}
}

// serve runs one connection to its end.
func (l *listener) serve(tcp *net.TCPConn) {
	c := &conn{proxy: l.proxy, listener: l, target: l.cfg.Upstream, cluster: l.cfg.Cluster}
	if err := l.prepare(c, tcp); err != nil {
		_ = tcp.Close() // it has not been used
		l.over(c)
		return
	}
	l.run(c)
}

// prepare finds out where a connection leads.
func (l *listener) prepare(c *conn, tcp *net.TCPConn) error {
	if err := c.down.open(tcp); err != nil {
		return err
	}
	if c.target == "" {
		address, err := originalDestination(tcp)
		if err == nil && address == tcp.LocalAddr().String() {
			err = errLoop
		}
		if err != nil {
			l.proxy.metrics.inc(metricUpstreamErrors)
			return err
		}
		c.target, c.cluster = address, address
		if name := l.names[address]; name != "" {
			c.cluster = name
		}
	}
	if !l.proxy.conns.add(c) {
		return net.ErrClosed
	}
	return nil
}

// errLoop says that a connection was not redirected: forwarding it would only
// bring it back.
var errLoop = errors.New("connection was meant for the sidecar itself")

// run serves a connection until its end, or until it moves to another goroutine.
func (l *listener) run(c *conn) {
	defer func() {
		if r := recover(); r != nil {
			// Nothing is known of the streams any more; the peers see a closed connection.
			l.proxy.metrics.inc(metricInternal)
			l.proxy.log.Error("recovered", "panic", r)
			c.moving = false
			if c.exchange != nil {
				c.settle(c.down.tcp != nil) // its goroutine may be using a buffer
			}
		}
		if c.moving {
			c.exchange = nil
			go l.run(c)
			return
		}
		l.over(c)
	}()
	if c.moving {
		c.moving = false
		c.serveHTTP1()
		return
	}
	if t := l.tls.Load(); t != nil && t.server != nil {
		if c.acceptTLS(t.server) != nil {
			return
		}
	}
	c.serve()
}

func (l *listener) over(c *conn) {
	l.proxy.conns.remove(c)
	c.end()
	l.open.Add(-1)
	l.proxy.metrics.open.Add(-1)
	l.proxy.busy.Done()
}

// role is which end of calls this port is at.
func (l *listener) role() tfi.Role { return l.cfg.Role }

// dial connects to an upstream.
func (p *Proxy) dial(ctx context.Context, address string) (*net.TCPConn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // else nobody waits for it any more
			p.metrics.inc(metricUpstreamErrors)
		}
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}
