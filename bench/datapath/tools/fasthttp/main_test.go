package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// TestForwards: a reference that dropped bodies or headers would cost too little.
func TestForwards(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Answer", r.Header.Get("X-Ask"))
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %d", r.Method, r.URL.Path, len(b))
	}))
	defer upstream.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fasthttp.Server{Handler: proxy(upstream.Listener.Addr().String())}
	go func() { _ = s.Serve(l) }()
	defer func() { _ = s.Shutdown() }()
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/a/b", strings.NewReader(strings.Repeat("x", 100_000)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Ask", "yes")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusTeapot || string(b) != "POST /a/b 100000" || resp.Header.Get("X-Answer") != "yes" {
			t.Errorf("%d %q %v %v", resp.StatusCode, b, resp.Header, err)
		}
	}
}
