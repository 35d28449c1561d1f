package jaeger_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sequencefi/sequencefi/deploy/jaeger"
	"github.com/sequencefi/sequencefi/deploy/jaeger/jaegertest"
	"github.com/sequencefi/sequencefi/deploy/process"
)

func TestStartAndStop(t *testing.T) {
	j := jaegertest.Start(t)
	data := filepath.Join(filepath.Dir(j.LogPath()), "jaeger-data")
	if _, err := os.Stat(data); err != nil {
		t.Error(err)
	}
	j.Stop()
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its store was left behind: %v", err)
	}
	log, err := j.Log()
	if err != nil || strings.Contains(string(log), "4317") {
		t.Errorf("it sends its own spans somewhere: %v\n%s", err, log)
	}
}

func TestStartFails(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "jaeger")
	if err := os.WriteFile(bad, []byte("#!/bin/sh\necho broken configuration >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := jaeger.Start(t.Context(), jaeger.Options{Path: bad, Dir: t.TempDir()})
	if !errors.Is(err, process.ErrEnded) || !strings.Contains(err.Error(), "broken configuration") {
		t.Errorf("got %v", err)
	}
}
