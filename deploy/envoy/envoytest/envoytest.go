// Package envoytest gives tests a real Envoy.
package envoytest

import (
	"net"
	"testing"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/process/processtest"
)

// Binary returns the path of an Envoy of the version. Without one the test is
// skipped, or fails where CI is "true".
func Binary(t testing.TB, version string) string {
	t.Helper()
	return processtest.Binary(t, func() (string, error) { return envoy.Find(version) })
}

// Start starts an Envoy of [envoy.Version], or that of o.Path, and stops it
// when the test ends; the log is shown when the test failed.
func Start(t testing.TB, o envoy.Options) *envoy.Process {
	t.Helper()
	if o.Path == "" {
		o.Path = Binary(t, envoy.Version)
	}
	p, err := envoy.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if log, err := p.Log(); err == nil && t.Failed() {
			t.Logf("%s", log[max(0, len(log)-4096):])
		}
		p.Stop()
	})
	return p
}

// FreeAddr returns a loopback address that was free a moment ago.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
