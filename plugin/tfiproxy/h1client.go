package tfiproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// client is a small HTTP/1.1 client over one connection that is kept: what the
// sidecar itself asks of control plane and collector. It is used by one goroutine.
type client struct {
	address string
	// connect bounds a new connection.
	connect time.Duration
	dialer  net.Dialer

	conn    sock
	request []byte
	in      *buffer
}

// reply is an answer; its slices live until the client's next call.
type reply struct {
	status int
	head   headView
	body   []byte
}

// maxReply bounds the body of an answer.
const maxReply = 4 << 20

// errReply says that an answer cannot be used.
var errReply = errors.New("unusable answer")

// do sends a request and reads its answer until ctx ends. fields are whole lines,
// each with its CRLF; a body may come in pieces. A kept connection that turns out to be
// dead is replaced once.
func (c *client) do(ctx context.Context, method, path, host, fields string, body ...[]byte) (reply, error) {
	if c.conn.isOpen() && (len(c.in.data()) > 0 || !c.conn.usable()) {
		c.close() // what it has said would pass for the answer
	}
	kept := c.conn.isOpen()
	r, err := c.try(ctx, method, path, host, fields, body...)
	if err != nil && kept && ctx.Err() == nil {
		c.close()
		r, err = c.try(ctx, method, path, host, fields, body...)
	}
	if err != nil {
		c.close()
	}
	return r, err
}

func (c *client) close() {
	c.conn.close()
	putBuffer(c.in)
	c.in = nil
}

func (c *client) try(ctx context.Context, method, path, host, fields string, body ...[]byte) (reply, error) {
	if !c.conn.isOpen() {
		dial, cancel := context.WithTimeout(ctx, c.connect)
		defer cancel()
		conn, err := c.dialer.DialContext(dial, "tcp", c.address)
		if err != nil {
			return reply{}, err
		}
		if err := c.conn.open(conn.(*net.TCPConn)); err != nil {
			return reply{}, err
		}
	}
	tcp := c.conn.tcp
	// An expired deadline wakes the read or write under way.
	defer context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })()
	b := c.request[:0]
	b = append(b, method...)
	b = append(b, ' ')
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nhost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	b = append(b, fields...)
	if method != "GET" {
		length := 0
		for _, piece := range body {
			length += len(piece)
		}
		b = append(b, "content-length: "...)
		b = strconv.AppendInt(b, int64(length), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	for _, piece := range body {
		if len(b)+len(piece) <= gatherBytes {
			b = append(b, piece...)
			continue
		}
		if err := c.conn.write(b); err != nil {
			return reply{}, err
		}
		if b = b[:0]; len(piece) <= gatherBytes {
			b = append(b, piece...)
		} else if err := c.conn.write(piece); err != nil {
			return reply{}, err
		}
	}
	if len(b) > 0 {
		if err := c.conn.write(b); err != nil {
			return reply{}, err
		}
	}
	c.request = b
	return c.readReply(method)
}

func (c *client) readReply(method string) (reply, error) {
	raw, head, err := c.readHead()
	for err == nil && head.status < 200 { // interim
		raw, head, err = c.readHead()
	}
	if err != nil {
		return reply{}, err
	}
	r := reply{status: head.status}
	r.head.index(raw)
	length := head.bodyLength([]byte(method))
	var follow body
	follow.begin(length)
	var rest []byte
	for !follow.done {
		data := c.in.data()
		n, err := follow.consume(data)
		if err != nil {
			return reply{}, fmt.Errorf("%w: %w", errReply, err)
		}
		rest = append(rest, data[:n]...)
		c.in.skip(n)
		if len(rest) > maxReply {
			return reply{}, fmt.Errorf("%w: larger than %d bytes", errReply, maxReply)
		}
		if follow.done {
			break
		}
		if c.in, err = c.conn.read(c.in); err != nil {
			if length == lengthEOF && errors.Is(err, io.EOF) {
				break
			}
			return reply{}, err
		}
	}
	r.body = rest
	if length == lengthChunked {
		r.body = dechunked(rest)
	}
	putBuffer(c.in)
	c.in = nil
	if length == lengthEOF || !head.persists(head.minor) {
		c.conn.close()
	}
	return r, nil
}

// readHead reads a head of an answer.
func (c *client) readHead() (raw []byte, head responseHead, err error) {
	size := headEnd(c.in.data(), 0)
	for searched := 0; size == 0; searched = len(c.in.data()) {
		if c.in != nil && !c.in.makeRoom() {
			return nil, head, fmt.Errorf("%w: %w", errReply, errHeadSize)
		}
		if c.in, err = c.conn.read(c.in); err != nil {
			return nil, head, err
		}
		size = headEnd(c.in.data(), searched)
	}
	raw = append(raw, c.in.data()[:size]...)
	c.in.skip(size)
	if err := head.scan(raw); err != nil {
		return nil, head, fmt.Errorf("%w: %w", errReply, err)
	}
	return raw, head, nil
}

// dechunked takes the data out of a whole chunked body that has been checked.
func dechunked(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		size, i := 0, 0
		for ; i < len(b); i++ {
			d, ok := hexValue(b[i])
			if !ok {
				break
			}
			size = size<<4 | int(d)
		}
		for i < len(b) && b[i] != '\n' {
			i++
		}
		i++
		if size == 0 || i+size+2 > len(b) {
			return out
		}
		out = append(out, b[i:i+size]...)
		b = b[i+size+2:]
	}
	return out
}
