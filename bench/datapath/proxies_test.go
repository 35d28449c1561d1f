package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sequencefi/sequencefi/deploy/process"
)

// TestStartProxies: one that does not start leaves the others to be measured, but
// without TFIProxy there is nothing to compare.
func TestStartProxies(t *testing.T) {
	defer func(all []starter) { starters = all }(starters)
	attempts := 0
	sound := func(name string) starter {
		return starter{name, func(*bed, context.Context) (*proxy, error) { return &proxy{name: name}, nil }}
	}
	broken := func(name string, err error) starter {
		return starter{name, func(*bed, context.Context) (*proxy, error) { return nil, err }}
	}
	taken := starter{haproxyName, func(*bed, context.Context) (*proxy, error) {
		if attempts++; attempts == 1 {
			return nil, fmt.Errorf("bind: %w", process.ErrEnded)
		}
		return &proxy{name: haproxyName}, nil
	}}
	for _, c := range []struct {
		starters []starter
		started  string
		told     string
		fails    bool
	}{
		{[]starter{broken(nginxName, errors.New("no")), taken, sound(tfiproxyName)}, "haproxy tfiproxy", "nginx: no", false},
		{[]starter{broken(envoyName, errMissing), sound(tfiproxyName)}, "tfiproxy", "envoy: not found", false},
		{[]starter{sound(nginxName), broken(tfiproxyName, errors.New("no"))}, "nginx", "", true},
	} {
		starters = c.starters
		b := &bed{}
		var told []string
		err := b.startProxies(t.Context(), nil, func(err error) { told = append(told, err.Error()) })
		if (err != nil) != c.fails {
			t.Errorf("error %v", err)
		}
		var started []string
		for _, p := range b.proxy {
			started = append(started, p.name)
		}
		if got := strings.Join(started, " "); got != c.started || strings.Join(told, "; ") != c.told {
			t.Errorf("started %q, told %q; want %q, %q", got, told, c.started, c.told)
		}
	}
}

// TestStopAtOnce: what is torn down may take its time, but not one after the other.
func TestStopAtOnce(t *testing.T) {
	b := &bed{}
	meet := make(chan bool)
	b.later(func() { meet <- true })
	b.later(func() { <-meet })
	b.stop()
}

// TestReferencesAreMeasuredLess where no target looks at them.
func TestReferencesAreMeasuredLess(t *testing.T) {
	for _, w := range workloads(false) {
		if !(&proxy{name: pumpName}).shows(w) {
			t.Errorf("the floor lacks %s", w.name())
		}
	}
	r := &proxy{name: fasthttpName}
	for w, want := range map[workload]bool{
		{shape: shapeGet, connections: 64}:                   true,
		{shape: shapeGet, connections: 8, bytes: 64 << 10}:   true,
		{shape: shapeGet, connections: 64, bytes: 64 << 10}:  false,
		{shape: shapePost, connections: 8, bytes: 64 << 10}:  true,
		{shape: shapeGet, connections: 1, bytes: 1024 << 10}: false,
	} {
		if r.shows(w) != want {
			t.Errorf("%s: %v", w.name(), !want)
		}
	}
}
