package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPipeForAFile: no signal would end the wait for whoever writes to it.
func TestPipeForAFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const service = "services: [{name: shop, sidecar: tfiproxy, app: '127.0.0.1:1', inbound: '127.0.0.1:2'}]\n"
	write(t, filepath.Join(dir, "topology.yaml"), service)
	token := write(t, filepath.Join(dir, "token.yaml"), service+"policyToken: pipe\n")
	envoy := write(t, filepath.Join(dir, "envoy.yaml"), "services: [{name: shop}]\nmodule: 127.0.0.1:18009\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	fresh := filepath.Join(dir, "new")
	out := filepath.Join(dir, "out")
	for _, args := range [][]string{
		{"run", pipe},
		{"check", file, "--topology", pipe},
		{"serve", "--topology", pipe},
		{"run", file, "--policy-token", pipe, "--out", out, "--policy", "127.0.0.1:0", "--otlp", "127.0.0.1:0"},
		{"run", file, "--topology", envoy, "--plugin", pipe, "--out", out, "--xds", "127.0.0.1:0", "--otlp", "127.0.0.1:0"},
		{"replay", pipe},
		{"replay", "testdata/replay.yaml", "--campaign", pipe},
		{"report", pipe},
		{"solve", pipe},
		{"init", "--har", pipe, "--dir", fresh},
		{"init", "--jaeger", pipe, "--dir", fresh},
		{"init", "--curl", "curl http://127.0.0.1:1/ -d @" + pipe, "--dir", fresh},
		{"tfiproxy", "config", "shop", "--topology", token},
	} {
		t.Run(strings.ReplaceAll(strings.Join(args, " "), dir, ""), func(t *testing.T) {
			done := make(chan result, 1)
			go func() { done <- call(t, args...) }()
			select {
			case r := <-done:
				r.expect(t, exitUsage, pipe+": must be a regular file")
			case <-time.After(20 * time.Second):
				t.Fatal("it waits for the pipe")
			}
		})
	}
}
