package envoy_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
	"github.com/sequencefi/sequencefi/deploy/process"
)

func bootstrap(admin string) []byte {
	_, port, _ := strings.Cut(admin, ":")
	return fmt.Appendf(nil, `{"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %s}}}}`, port)
}

func TestStartAndStop(t *testing.T) {
	admin := envoytest.FreeAddr(t)
	p := envoytest.Start(t, envoy.Options{Bootstrap: bootstrap(admin), Admin: admin})
	stats, err := p.Stats(t.Context(), regexp.MustCompile(`^server\.live$`))
	if err != nil || stats["server.live"] != 1 {
		t.Fatalf("server.live = %v, %v; want 1", stats, err)
	}
	if n, err := p.VMs(t.Context()); n != 0 || err != nil {
		t.Errorf("VMs = %d, %v; want none", n, err)
	}
	if u, err := p.Usage(); err != nil || u.RSS < 1<<20 || u.CPU < 0 {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if group, err := syscall.Getpgid(p.Pid()); err != nil || group != p.Pid() {
		t.Errorf("a Ctrl-C in the terminal would reach it: process group %d, %v", group, err)
	}
	p.Stop()
	select {
	case <-p.Done():
	default:
		t.Error("runs after Stop")
	}
}

func TestStartTellsWhyItFailed(t *testing.T) {
	admin := envoytest.FreeAddr(t)
	_, err := envoy.Start(t.Context(), envoy.Options{
		Path: envoytest.Binary(t, envoy.Version), Bootstrap: []byte(`{"no_such_field": 1}`), Admin: admin,
	})
	if !errors.Is(err, process.ErrEnded) || !strings.Contains(err.Error(), "no_such_field") {
		t.Fatalf("error %v does not name the field", err)
	}
}

func TestFindTellsHowToGetOne(t *testing.T) {
	t.Setenv("ENVOY", "")
	t.Chdir(t.TempDir())
	for version, want := range map[string]string{envoy.Version: "make envoy", "0.0.0": ".ci/fetch-envoy 0.0.0"} {
		if _, err := envoy.Find(version); !errors.Is(err, envoy.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("version %s: %v, want ErrNotFound and %q", version, err, want)
		}
	}
}
