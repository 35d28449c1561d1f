package main

import (
	"context"
	"net/http"
	"net/http/pprof"
	"os"
	"sync"
	"testing"
)

// allocating is a callee that allocates a known number of objects, on purpose.
const allocating = "callee-allocating"

func init() {
	var mu sync.Mutex
	var kept [50]*[64]byte
	roles[allocating] = func(listen, _ string) error {
		mux := http.NewServeMux()
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/0", func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			for i := range kept {
				kept[i] = new([64]byte)
			}
		})
		return (&http.Server{Addr: listen, Handler: mux}).ListenAndServe() //nolint:gosec // on loopback
	}
}

// TestPerRequest counts what is allocated on purpose, among what net/http does.
func TestPerRequest(t *testing.T) {
	needTools(t)
	b := &bed{work: t.TempDir(), keys: newKeys()}
	defer b.stop()
	start := func(ctx context.Context) (*proxy, error) {
		address := freeAddress(t)
		p, err := b.start([]string{"env", "GODEBUG=memprofilerate=1", "GOGC=off"}, allocating, os.Args[0], "-role", allocating, "-listen", address)
		if err != nil {
			return nil, err
		}
		return &proxy{http: address, admin: address, stop: p.Stop}, ready(ctx, p, dial(address))
	}
	n, err := b.perRequest(t.Context(), workload{shape: shapeGet, connections: 2}, 200, start)
	if err != nil || n < 50 || n > 200 {
		t.Errorf("%v objects a request, %v; want 50 and some of net/http", n, err)
	}
}
