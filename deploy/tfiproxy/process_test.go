package tfiproxy

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sequencefi/sequencefi/deploy/process"
)

// buildBinary builds the sidecar from the working tree.
func buildBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tfiproxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/sequencefi/sequencefi/plugin/tfiproxy/cmd/tfiproxy")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func TestStart(t *testing.T) {
	addresses, err := process.FreeAddrs(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	backend := "127.0.0.1:" + httpServer(t, "service")
	o := Options{
		Path: buildBinary(t), Admin: addresses[0], Dir: t.TempDir(),
		Config: fmt.Appendf(nil, `{"service": "shop", "admin": %q, "inbound": [{"listen": %q, "upstream": %q}]}`, addresses[0], addresses[1], backend),
	}
	p, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if got := get(t, "http://"+addresses[1]+"/"); got != "service" {
		t.Errorf("got %q", got)
	}
	if n, err := p.Metric(t.Context(), "sequencefi_requests_total"); n != 1 || err != nil {
		t.Errorf("%d requests, %v", n, err)
	}
	if v, err := p.Policy(t.Context()); v != "" || err != nil {
		t.Errorf("policy %q, %v", v, err)
	}
	if _, err := p.Get(t.Context(), "/nothing"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
	// One that cannot start says why, though nothing is ever ready.
	bad := o
	bad.Name, bad.Config, bad.Admin = "bad", []byte("{}"), "127.0.0.1:1"
	if _, err := Start(t.Context(), bad); !errors.Is(err, process.ErrEnded) || !strings.Contains(err.Error(), "service:") {
		t.Errorf("a bad configuration: %v", err)
	}
	p.Stop()
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addresses[1]); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
	if _, err := Start(t.Context(), Options{}); err == nil {
		t.Error("options without a program are taken")
	}
}
