package tfiproxy

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startProxy runs a sidecar until the test ends.
func startProxy(t testing.TB, c *Config) *Proxy {
	t.Helper()
	return startLogging(t, c, t.Output())
}

// startLogging is startProxy with a log of its own.
func startLogging(t testing.TB, c *Config, log io.Writer) *Proxy {
	t.Helper()
	if c.Timeouts.Tick == 0 {
		c.Timeouts.Tick = 20 * time.Millisecond
	}
	if c.Service == "" {
		c.Service = "shop"
	}
	p, err := New(c, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error("run:", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the sidecar does not end")
		}
	})
	return p
}
