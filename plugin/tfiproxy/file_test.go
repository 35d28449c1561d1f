package tfiproxy

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := readFile(file, 5); err != nil || string(b) != "12345" {
		t.Errorf("%q, %v", b, err)
	}
	for name, want := range map[string]error{
		file: errTooLarge, pipe: errNotRegular, dir: errNotRegular, "/dev/zero": errNotRegular, file + "x": fs.ErrNotExist,
	} {
		if _, err := readFile(name, 4); !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %v and its name", name, err, want)
		}
	}
}

func TestLoadConfigFromAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		written <- os.WriteFile(pipe, []byte(`{"service":"a","inbound":[{"listen":"127.0.0.1:0","upstream":"127.0.0.1:9"}]}`), 0o600)
	}()
	if cfg, err := LoadConfig(pipe); err != nil || cfg.Service != "a" {
		t.Errorf("%v, %v", cfg, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	if _, err := LoadConfig("/dev/zero"); !errors.Is(err, errTooLarge) {
		t.Errorf("/dev/zero: %v", err)
	}
}

// TestPipesDoNotHoldUpTheEnd has pipes that nobody writes to where there should be files.
func TestPipesDoNotHoldUpTheEnd(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]PolicySource{
		"policy": {File: pipe},
		"token":  {Address: "127.0.0.1:9", TokenFile: pipe},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := outboundTo(echoHTTP1(t, plainAnswer))
			cfg.Policy = source
			var log lines
			p, err := New(cfg, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			eventually(t, "no word of the pipe", func() bool { return strings.Contains(strings.Join(log.all(), ""), errNotRegular.Error()) })
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				// Whoever opens the pipe now lets the sidecar go.
				if f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
					_ = f.Close()
				}
				t.Error("it did not end")
			}
		})
	}
}
