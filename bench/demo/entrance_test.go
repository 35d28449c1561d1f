package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestEntrance: however many come at once, one is served at a time, and each is served.
func TestEntrance(t *testing.T) {
	const clients = 20
	var inside, overlaps, came atomic.Int32
	allCame := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if inside.Add(1) > 1 {
			overlaps.Add(1)
		}
		<-allCame
		for range 100 {
			runtime.Gosched() // any other has time to come in
		}
		inside.Add(-1)
		fmt.Fprint(w, "served")
	}))
	t.Cleanup(srv.Close)
	e := &Env{}
	addr, err := e.startEntrance(t.Context(), srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if came.Add(1) == clients {
				close(allCame)
			}
			return c, err
		},
	}}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			if got, err := fetchBy(t.Context(), client, "http://"+addr, nil); err != nil || string(got.body) != "served" {
				t.Errorf("%d %s %v", got.status, got.body, err)
			}
		})
	}
	wg.Wait()
	if n := overlaps.Load(); n > 0 {
		t.Errorf("%d were served beside others", n)
	}
	e.Close()
	if heads := e.Heads()[entranceName]; heads != 2*clients {
		t.Errorf("%d heads of requests and answers, want %d", heads, 2*clients)
	}
}
