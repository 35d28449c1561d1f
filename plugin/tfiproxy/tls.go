package tfiproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// Protocols as TLS negotiates them (RFC 7301).
const (
	alpnHTTP1 = "http/1.1"
	alpnHTTP2 = "h2"
	alpnOld   = "http/1.0" // goes with http/1.1
)

// errALPN says that an upstream does not speak what the client does. Nothing is
// translated, so nothing can be sent there.
var errALPN = errors.New("upstream has not agreed to the client's protocol")

// secured is TLS over a connection.
type secured struct {
	sock *sock
	tcp  *net.TCPConn
	conn *tls.Conn
	// try: the read under way must not wait. It goes into into; the function is made once.
	try        bool
	into       []byte
	n          int
	err        error
	onTry      func(fd uintptr) bool
	onReadable func(fd uintptr) bool
	// ahead: first has been read, to know whether anything is there, and is still to be told.
	ahead bool
	first [1]byte
}

var _ layer = (*secured)(nil)

// wire is the TCP connection as package tls sees it.
type wire struct {
	*net.TCPConn
	layer *secured
}

// Read implements [net.Conn].
func (w wire) Read(b []byte) (int, error) {
	t := w.layer
	if !t.try {
		return w.TCPConn.Read(b)
	}
	t.into = b
	if err := t.sock.raw.Read(t.onTry); err != nil {
		return 0, err
	}
	return t.n, t.err
}

// tryFD is a read that does not wait.
func (t *secured) tryFD(fd uintptr) bool {
	n, errno := readFD(fd, t.into)
	t.into, t.n, t.err = nil, max(n, 0), nil
	switch {
	case errno == syscall.EAGAIN:
		t.n, t.err = 0, errNothing
	case errno != 0:
		t.n, t.err = 0, errno
	case n == 0:
		t.err = io.EOF
	}
	return true
}

// secure puts TLS over an open connection and shakes hands; made is [tls.Server] or
// [tls.Client]. The handshake ends when the connection is closed or its deadline passes.
func (s *sock) secure(made func(net.Conn, *tls.Config) *tls.Conn, cfg *tls.Config) (protocol string, err error) {
	t := &secured{sock: s, tcp: s.tcp, onReadable: waitsNoMore}
	t.onTry = t.tryFD
	t.conn = made(wire{s.tcp, t}, cfg)
	if err := t.conn.HandshakeContext(context.Background()); err != nil {
		return "", err
	}
	s.over = t
	s.sealed.Store(t)
	return t.conn.ConnectionState().NegotiatedProtocol, nil
}

// read implements layer. While it waits for a first byte it has no buffer.
func (t *secured) read(b *buffer, try bool) (*buffer, error) {
	if b != nil {
		return b, t.fill(b, try)
	}
	for {
		b = takeBuffer()
		err := t.fill(b, true)
		if err == nil {
			return b, nil
		}
		putBuffer(b)
		if err != errNothing || try { //nolint:errorlint // returned as it is
			return nil, err
		}
		if err := t.sock.raw.Read(t.onReadable); err != nil {
			return nil, err
		}
	}
}

func (t *secured) fill(b *buffer, try bool) error {
	had := t.ahead && b.w < len(b.b)
	if had {
		b.b[b.w] = t.first[0]
		b.w++
		t.ahead = false
	}
	n, err := t.next(b.b[b.w:], try || had)
	b.w += n
	if n > 0 || had {
		return nil // an end is told again
	}
	return err
}

// next reads what the peer has said next.
func (t *secured) next(b []byte, try bool) (int, error) {
	t.try = try
	n, err := t.conn.Read(b)
	t.try = false
	return n, err
}

// holds tells whether the peer has said more than has been read, as far as it has come.
// Package tls reads many records at once, so that TCP does not tell. It is for who reads.
func (t *secured) holds() bool {
	if !t.ahead {
		n, _ := t.next(t.first[:], true) // an end is told again
		t.ahead = n > 0
	}
	return t.ahead
}

// waitsNoMore is called when there may be something to read.
func waitsNoMore(fd uintptr) bool {
	var one [1]byte
	_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err != syscall.EAGAIN
}

// write implements layer.
func (t *secured) write(b []byte) error {
	_, err := t.conn.Write(b)
	return err
}

// closeWrite implements layer. It may be called beside a read, also when the connection
// is being closed; it waits for seconds at most.
func (t *secured) closeWrite() error {
	if err := t.conn.CloseWrite(); err != nil {
		return err
	}
	return t.tcp.CloseWrite()
}

// close implements layer.
func (t *secured) close() {
	_ = t.conn.Close() // it says goodbye if it can
}

// refusePlain tells a client that speaks HTTP to a TLS port so, as it could not
// make out an alert.
func refusePlain(tcp *net.TCPConn, err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) {
		return
	}
	switch string(record.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PATCH", "DELET":
		_ = tcp.SetWriteDeadline(time.Now().Add(time.Second)) // a failed write tells
		_, _ = tcp.Write([]byte("HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n" +
			"connection: close\r\n\r\nthis port speaks TLS\n"))
	}
}

// acceptTLS shakes hands with a client.
func (c *conn) acceptTLS(cfg *tls.Config) error {
	c.enter(phaseHead) // which has a time-out
	protocol, err := c.down.secure(tls.Server, cfg)
	if err != nil {
		c.proxy.metrics.inc(metricTLSErrors)
		c.proxy.log.Debug("TLS with a client", "listen", c.listener.cfg.Listen, "error", err)
		refusePlain(c.down.tcp, err)
		return err
	}
	if c.protocol = protocol; protocol == alpnOld {
		c.protocol = alpnHTTP1
	}
	return nil
}

// dialTLS shakes hands with an upstream to which a connection has just been opened.
func (c *conn) dialTLS(cfg *tls.Config) error {
	protocol := alpnHTTP1
	if c.protocol == alpnHTTP2 {
		protocol = alpnHTTP2
	}
	cfg = cfg.Clone()
	cfg.NextProtos = []string{protocol}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(c.target)
	}
	tcp := c.up.tcp
	if err := tcp.SetDeadline(time.Now().Add(c.proxy.cfg.Timeouts.Connect)); err != nil {
		return err
	}
	got, err := c.up.secure(tls.Client, cfg)
	if err == nil && got != protocol && (got != "" || protocol == alpnHTTP2) {
		err = fmt.Errorf("%w: %s", errALPN, protocol)
	}
	if err == nil {
		err = tcp.SetDeadline(time.Time{})
	}
	if err != nil && !c.left.Load() {
		c.proxy.metrics.inc(metricTLSErrors)
		c.proxy.metrics.inc(metricUpstreamErrors)
		c.listener.tell("TLS with an upstream", c.target, err)
	}
	if err != nil {
		c.closeUp()
	}
	return err
}

// tell logs an error of an upstream unless it is the one that was logged last:
// each connection would have it.
func (l *listener) tell(what, address string, err error) {
	text := address + ": " + strings.TrimSpace(err.Error())
	if last := l.told.Swap(&text); last == nil || *last != text {
		l.proxy.log.Warn(what, "listen", l.cfg.Listen, "upstream", address, "error", err)
	}
}
