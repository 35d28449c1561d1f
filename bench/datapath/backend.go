package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
)

// roles are what this program also is, as processes of their own: the callee, and
// the two references that are written in Go.
var roles = map[string]func(listen, upstream string) error{
	"backend":      func(listen, _ string) error { return serve(listen, backendHTTP1) },
	"grpc-backend": func(listen, _ string) error { return serve(listen, backendHTTP2) },
	"collector":    collector,
	"reverseproxy": reverseProxy,
	"pump": func(listen, upstream string) error {
		return serve(listen, func(c net.Conn) { pump(c, upstream) })
	},
}

func serve(listen string, handle func(net.Conn)) error {
	l, err := net.Listen("tcp", listen) //nolint:noctx // for as long as the process lives
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			handle(c)
		}()
	}
}

// backendHTTP1 answers `GET /N` with N bytes. It does as little as can be done, so
// that the proxy is what is measured.
func backendHTTP1(c net.Conn) {
	in := make([]byte, 0, 16<<10)
	answers := map[string][]byte{}
	for {
		n, err := c.Read(in[len(in):cap(in)])
		if err != nil {
			return
		}
		in = in[:len(in)+n]
		for {
			end := bytes.Index(in, []byte("\r\n\r\n"))
			if end < 0 {
				break
			}
			_, path, _ := bytes.Cut(in[:end], []byte("/"))
			path, _, _ = bytes.Cut(path, []byte(" "))
			answer, ok := answers[string(path)]
			if !ok {
				size, _ := strconv.Atoi(string(path)) // 0 is a size
				answer = append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "+
					strconv.Itoa(size)+"\r\n\r\n"), bytes.Repeat([]byte("x"), size)...)
				answers[string(path)] = answer
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
			in = in[:copy(in, in[end+4:])]
		}
		if len(in) == cap(in) {
			return
		}
	}
}

// backendHTTP2 answers every request as a gRPC server answers a unary call.
func backendHTTP2(c net.Conn) {
	preface := make([]byte, 24)
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	literal := func(b []byte, name, value string) []byte {
		b = append(b, 0, byte(len(name)))
		b = append(b, name...)
		b = append(b, byte(len(value)))
		return append(b, value...)
	}
	head := literal(literal(nil, ":status", "200"), "content-type", "application/grpc")
	tail := literal(nil, "grpc-status", "0")
	body := []byte("\x00\x00\x00\x00\x05hello")
	frame := func(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
		b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
		b = binary.BigEndian.AppendUint32(b, stream)
		return append(b, payload...)
	}
	in, out := make([]byte, 0, 128<<10), frame(nil, 4, 0, 0, nil)
	for {
		for len(in) >= 9 {
			size := int(in[0])<<16 | int(in[1])<<8 | int(in[2])
			if len(in) < 9+size {
				break
			}
			kind, flags, stream := in[3], in[4], binary.BigEndian.Uint32(in[5:])
			switch {
			case kind == 4 && flags&1 == 0:
				out = frame(out, 4, 1, 0, nil)
			case kind == 6 && flags&1 == 0:
				out = frame(out, 6, 1, 0, in[9:9+size])
			case kind == 0 && size > 0:
				out = frame(out, 8, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(size)))
			}
			if (kind == 0 || kind == 1) && flags&1 != 0 {
				out = frame(out, 1, 4, stream, head)
				out = frame(out, 0, 0, stream, body)
				out = frame(out, 1, 5, stream, tail)
			}
			in = in[:copy(in, in[9+size:])]
		}
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
		n, err := c.Read(in[len(in):cap(in)])
		if err != nil || n == 0 {
			return
		}
		in = in[:len(in)+n]
	}
}

// collector takes spans and throws them away.
func collector(listen, _ string) error {
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // nobody asks for them
	})
	return (&http.Server{Addr: listen, Handler: h}).ListenAndServe() //nolint:gosec // on loopback
}

// reverseProxy is Go's own.
func reverseProxy(listen, upstream string) error {
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 1000}
	return (&http.Server{Addr: listen, Handler: p}).ListenAndServe() //nolint:gosec // a reference on loopback
}

// pump passes bytes, a request and then its answer, and understands none of it:
// the least that a process in between can cost. It holds for answers that come in one read.
func pump(c net.Conn, upstream string) {
	up, err := net.Dial("tcp", upstream) //nolint:noctx // loopback, at once
	if err != nil {
		return
	}
	defer up.Close()
	b := make([]byte, 16<<10)
	for {
		for _, x := range [...]struct{ from, to net.Conn }{{c, up}, {up, c}} {
			n, err := x.from.Read(b)
			if err != nil {
				return
			}
			if _, err := x.to.Write(b[:n]); err != nil {
				return
			}
		}
	}
}
