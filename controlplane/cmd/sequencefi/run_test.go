package main

import (
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
)

// TestIsSolverAddress: what gRPC can dial is an address; what it can only misread is none.
func TestIsSolverAddress(t *testing.T) {
	for _, test := range []struct {
		text string
		want bool
	}{
		{"127.0.0.1:18080", true},
		{"[::1]:18080", true},
		{"localhost:18080", true},
		{"solver:http", true},
		{"dns:shop:18080", true},
		{"dns:///shop:18080", true},
		{"unix:/run/solver.sock", true},
		{"unix:solver.sock", true},
		{"unix:///run/solver.sock", true},
		{"unix-abstract:solver", true},
		{"", false},
		{"unix:", false},
		{"dns:///", false},
		{"/run/solver.sock", false},
		{"127.0.0.1", false},
		{":18080", false},
		{"127.0.0.1:", false},
		{"127.0.0.1:http2", false},
		{"ftp:/run/solver.sock", false},
		{"http://127.0.0.1:18080", false},
	} {
		if got := isSolverAddress(t.Context(), test.text); got != test.want {
			t.Errorf("%q: %v, want %v", test.text, got, test.want)
		}
	}
}

// TestSolverOnSocket: a solver service may be reached by a file.
func TestSolverOnSocket(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop, sidecar: tfiproxy}]\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	path := filepath.Join(dir, "s")
	target := "unix:" + path
	call(t, "run", file, "--solver", target, "--out", filepath.Join(dir, "out")).
		expect(t, exitIncomplete, "no solver answers at "+target+": start one there, or leave --solver out")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := dialSolver(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
