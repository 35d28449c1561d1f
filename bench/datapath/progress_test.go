package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestFollowKeeps reads from within a step what the one before has measured: a run
// that is killed has lost no more than its last seconds.
func TestFollowKeeps(t *testing.T) {
	dir := t.TempDir()
	s := &summary{Interrupted: true, begun: time.Now(), dir: dir}
	w := workload{shape: shapeGet, connections: 8}
	plan := []step{
		{name: "one", do: func(context.Context) error {
			s.Samples = append(s.Samples, sample{what: w, Proxy: tfiproxyName, Requests: 1, Rate: 1, CPUMicros: 10})
			return nil
		}},
		{name: "two", do: func(context.Context) error {
			kept := read(t, dir)
			if !kept.Interrupted || len(kept.Results) != 1 || kept.Results[0].CPUMicros != 10 {
				t.Errorf("kept %+v", kept)
			}
			return nil
		}},
	}
	var log bytes.Buffer
	if err := s.follow(t.Context(), plan, &log); err != nil {
		t.Fatal(err)
	}
}

// TestFollowKeepsTime: later rounds are left out where there is no time for them and
// for all that must be measured.
func TestFollowKeepsTime(t *testing.T) {
	for _, c := range []struct {
		end  time.Duration // from now
		want string
	}{
		{0, "first again last"}, // no bound
		{-time.Second, "first last"},
		{30 * time.Minute, "first last"}, // enough for the further ones alone
		{2 * time.Hour, "first again last"},
	} {
		var did []string
		do := func(name string) func(context.Context) error {
			return func(context.Context) error { did = append(did, name); return nil }
		}
		plan := []step{
			{name: "first", do: do("first")},
			{name: "again", takes: 10 * time.Minute, further: true, do: do("again")},
			{name: "last", takes: time.Hour, do: do("last")},
		}
		s := &summary{}
		if c.end != 0 {
			s.end = time.Now().Add(c.end)
		}
		var log bytes.Buffer
		if err := s.follow(t.Context(), plan, &log); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(did, " "); got != c.want {
			t.Errorf("within %v: %q, want %q", c.end, got, c.want)
		}
		if told := len(s.LeftOut) > 0; told != (len(did) < 3) {
			t.Errorf("within %v: left out: %q", c.end, s.LeftOut)
		}
	}
}

// TestFollowGoesOn after a step that would never end, and one that fails.
func TestFollowGoesOn(t *testing.T) {
	defer func(d time.Duration) { slack = d }(slack)
	slack = 10 * time.Millisecond
	reached := false
	plan := []step{
		{name: "stuck", do: func(ctx context.Context) error { <-ctx.Done(); return errors.New("killed") }},
		{name: "broken", do: func(context.Context) error { return errors.New("a\n b") }},
		{name: "sound", do: func(context.Context) error { reached = true; return nil }},
	}
	s := &summary{}
	var log bytes.Buffer
	if err := s.follow(t.Context(), plan, &log); err != nil || !reached {
		t.Fatalf("%v; reached the last: %v", err, reached)
	}
	want := []string{"stuck: not done within 10ms: killed", "broken: a b"}
	if fmt.Sprint(s.Problems) != fmt.Sprint(want) {
		t.Errorf("problems %q, want %q", s.Problems, want)
	}
}

// TestFollowWithoutProxy: one that has ended is told once, and not waited for.
func TestFollowWithoutProxy(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	p := &proxy{name: "gone", pid: cmd.Process.Pid}
	do := func(context.Context) error { t.Error("measured"); return nil }
	s := &summary{}
	var log bytes.Buffer
	if err := s.follow(t.Context(), []step{{name: "a", proxy: p, do: do}, {name: "b", proxy: p, do: do}}, &log); err != nil {
		t.Fatal(err)
	}
	if len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "gone has ended") {
		t.Errorf("problems %q", s.Problems)
	}
}
