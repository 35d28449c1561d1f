package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// roles are what this program also is, as processes of their own: the callees,
// the collector of spans and the load generators.
var roles = map[string]func(listen, upstream string) error{
	"callee-http": func(listen, _ string) error { return serve(listen, calleeHTTP1) },
	"callee-grpc": func(listen, _ string) error { return serve(listen, calleeHTTP2) },
	"collector":   collector,
	"generator":   func(_, _ string) error { return generate() },
	"idle":        holdIdle,
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

// calleeHTTP1 answers `GET /N`, or `POST /N` at the end of its body, with N bytes. It does as little as can be done, so
// that the proxy is what is measured.
func calleeHTTP1(c net.Conn) {
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
			body := 0
			if in[0] == 'P' {
				if body, err = contentLength(in[:end]); err != nil {
					return
				}
			}
			now := min(body, len(in)-end-4)
			if _, err := io.CopyN(io.Discard, c, int64(body-now)); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
			in = in[:copy(in, in[end+4+now:])]
		}
		if len(in) == cap(in) {
			return
		}
	}
}

// collector takes spans and throws them away. `PUT /` names a trace id, in binary;
// `GET /` says in how many messages it has been since.
func collector(listen, _ string) error {
	var mu sync.Mutex
	var trace []byte
	count := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sidecar's loss
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodPut:
			trace, count = b, 0
		case r.Method == http.MethodGet:
			fmt.Fprint(w, count)
		case len(trace) > 0 && bytes.Contains(b, trace):
			count++
		}
	})
	return (&http.Server{Addr: listen, Handler: h}).ListenAndServe() //nolint:gosec // on loopback
}
