package main

import (
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestSharedPort serves two things at one address, under each of its names.
func TestSharedPort(t *testing.T) {
	p := &plane{ports: map[string]*port{}, ctx: t.Context()}
	defer p.close()
	address := freeAddress(t)
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	first, err := p.serve(t.Context(), "--module", address, "/a/", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	if second, err := p.serve(t.Context(), "--policy", "localhost:"+number, "/b/", http.NotFoundHandler()); err != nil || second != first {
		t.Errorf("at localhost: %q, %v", second, err)
	}
	if runtime.GOOS != "linux" {
		return // others may let two programs have one port
	}
	if _, err := p.serve(t.Context(), "--policy", "0.0.0.0:"+number, "/c/", http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "the very address of "+address) {
		t.Errorf("at all addresses: %v", err)
	}
}
