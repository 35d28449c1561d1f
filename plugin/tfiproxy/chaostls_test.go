package tfiproxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// ends is a connection of which either end can be ended in every way.
type ends interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
}

var (
	_ ends = (*net.TCPConn)(nil)
	_ ends = (*secureEnds)(nil)
)

// secureEnds is TLS over a connection.
type secureEnds struct {
	*tls.Conn
	tcp    *net.TCPConn
	breaks bool
}

// CloseWrite implements ends: what TLS ends, TCP does.
func (c *secureEnds) CloseWrite() error { return errors.Join(c.Conn.CloseWrite(), c.tcp.CloseWrite()) }

// SetLinger implements ends.
func (c *secureEnds) SetLinger(seconds int) error {
	c.breaks = true
	return c.tcp.SetLinger(seconds)
}

// Close implements [net.Conn]. A connection that breaks says no goodbye.
func (c *secureEnds) Close() error {
	if c.breaks {
		return c.tcp.Close()
	}
	return c.Conn.Close()
}

// chaosMode is whether chaos is in plain bytes, or inside of TLS at both ends.
type chaosMode struct {
	name     string
	requests int
	a        *authority // nil: plain
	protocol string     // of ALPN
}

// chaosModes are the two. Most connections do not live for many requests, and each takes
// two handshakes, so that TLS gets fewer of them.
func chaosModes(t *testing.T, protocol string) []chaosMode {
	return []chaosMode{
		{name: "plain", requests: *chaosRequests, protocol: protocol},
		{name: "TLS", requests: *chaosRequests / 4, a: newAuthority(t), protocol: protocol},
	}
}

// atLeast is how many answers of that many calls must come whole. Those do not count whose
// handshake took longer than the sidecar lets it here, as on a busy machine many do.
func (m *chaosMode) atLeast(calls int64) int64 {
	switch {
	case m.a != nil: // the sidecar has handshakes of its own
		return calls / 4
	case m.protocol == alpnHTTP2:
		return calls / 3
	}
	return calls / 2
}

// shakes reports whether the handshake of a connection comes to an end, if it has one.
func (m *chaosMode) shakes(c ends) bool {
	secure, ok := c.(*secureEnds)
	return !ok || secure.SetDeadline(time.Now().Add(15*time.Second)) == nil && secure.Handshake() == nil
}

// config is a sidecar's, in front of an upstream that serve makes.
func (m *chaosMode) config(t *testing.T, serve func(ends, int)) *Config {
	if m.a == nil {
		return outboundTo(rawServer(t, func(conn *net.TCPConn, n int) { serve(conn, n) }))
	}
	pair := m.a.issue(t, "upstream", "localhost")
	server := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{m.protocol}}
	cfg := m.a.terminating(t, rawServer(t, func(conn *net.TCPConn, n int) {
		c := &secureEnds{Conn: tls.Server(conn, server), tcp: conn}
		defer c.Close()
		serve(c, n)
	}))
	cfg.Listeners[0].UpstreamTLS = &ClientTLS{CA: m.a.file("ca.crt")}
	return cfg
}

// client is the TLS of clients; nil: none.
func (m *chaosMode) client() *tls.Config {
	if m.a == nil {
		return nil
	}
	c := m.a.client()
	c.ServerName, c.NextProtos = "localhost", []string{m.protocol}
	return c
}

// dial connects to the sidecar.
func (m *chaosMode) dial(p *Proxy) (ends, error) {
	c, err := net.Dial("tcp", p.Addr(0).String())
	if err != nil {
		return nil, err
	}
	tcp := c.(*net.TCPConn)
	if m.a == nil {
		return tcp, nil
	}
	return &secureEnds{Conn: tls.Client(tcp, m.client()), tcp: tcp}, nil
}

// handshakes says that some of them failed where there were any, and no others.
func (m *chaosMode) handshakes(t *testing.T, p *Proxy) {
	t.Helper()
	if n := p.metrics.get(metricTLSErrors); (n > 0) != (m.a != nil) {
		t.Errorf("%d handshakes failed", n)
	}
}

// scheme of URLs.
func (m *chaosMode) scheme() string {
	if m.a == nil {
		return "http"
	}
	return "https"
}

// chaosHandshake is a client that goes wrong before there is TLS.
func (m *chaosMode) chaosHandshake(t *testing.T, p *Proxy, n int) {
	c, err := net.Dial("tcp", p.Addr(0).String())
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Error(err)
		return
	}
	tcp := c.(*net.TCPConn)
	switch n % 5 {
	case 0: // speaks HTTP
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	case 1: // says nonsense
		_, _ = c.Write(bytes.Repeat([]byte{0xff}, 100))
	case 2: // stalls in the middle of a record
		_, _ = c.Write([]byte{tlsHandshake, 3, 1, 0x10, 0, 1})
	case 3: // ends in the middle of one
		_, _ = c.Write([]byte{tlsHandshake, 3, 1, 0x10, 0, 1})
		_ = tcp.CloseWrite()
	case 4: // breaks
		_ = tcp.SetLinger(0)
		return
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("client %d is stuck", n)
		}
	}
}
