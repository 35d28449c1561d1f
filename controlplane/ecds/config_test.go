package ecds

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

func TestConfigDefaults(t *testing.T) {
	c, err := testConfig().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.TTL != 15*time.Second || c.FirstTTL != 30*time.Second || c.Heartbeat != 5*time.Second || c.Logger == nil {
		t.Errorf("%+v", c)
	}
}

func TestConfigTellsAllProblems(t *testing.T) {
	_, err := New(Config{
		Module: gate.Module{URI: "http://h/m.wasm", SHA256: "ABC"}, TTL: time.Second / 2, FirstTTL: time.Millisecond,
		Heartbeat: time.Second, PushInterval: -1, ModuleRetry: -1, ConnectGrace: -1,
	})
	if !errors.Is(err, ErrConfig) || !errors.Is(err, gate.ErrModule) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"sha256", ": ttl", "first_ttl", "heartbeat", "push_interval", "module_retry", "connect_grace"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in %v", want, err)
		}
	}
	if _, err := New(Config{}); !errors.Is(err, gate.ErrModule) {
		t.Errorf("without a module: %v", err)
	}
	if _, err := New(Config{Module: gate.Module{Filename: "f", URI: "u"}}); !errors.Is(err, gate.ErrModule) {
		t.Errorf("with two modules: %v", err)
	}
}
