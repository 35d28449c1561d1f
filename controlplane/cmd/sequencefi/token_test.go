package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/topology"
)

func TestTokens(t *testing.T) {
	dir := t.TempDir()
	path, _ := nativeTopology(t, dir, "")
	serve := func(args ...string) result {
		return call(t, append([]string{"serve", "--topology", path, "--otlp", "127.0.0.1:0"}, args...)...)
	}
	serve().expect(t, exitUsage, "policy-token", "no such file", "sequencefi tfiproxy config makes")
	serve("--policy-token", filepath.Join(dir, "none")).expect(t, exitUsage, "none: no such file")
	short := write(t, filepath.Join(dir, "short"), "secret\n")
	serve("--policy-token", short).expect(t, exitUsage, "at least 16 visible")
	t.Setenv(tokenVariable, "two words of a token")
	serve().expect(t, exitUsage, "$"+tokenVariable, "visible")

	top, err := topology.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(tokenVariable, " 0123456789abcdef\n")
	if token, _, err := readToken("", top); err != nil || token != "0123456789abcdef" {
		t.Errorf("%q %v", token, err)
	}
	write(t, short, "fedcba9876543210\n")
	if token, _, err := readToken(short, top); err != nil || token != "fedcba9876543210" {
		t.Errorf("a file that is named goes first: %q %v", token, err)
	}
	t.Setenv(tokenVariable, "")
	if _, _, err := readToken("", &topology.Topology{}); err == nil || !strings.Contains(err.Error(), "--policy-token") {
		t.Errorf("%v", err)
	}
}

// TestTokenFile has token files that are there already, with a token or without.
func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	path, _ := nativeTopology(t, dir, "")
	file := write(t, filepath.Join(dir, "policy-token"), "")
	config := func() result { return call(t, "tfiproxy", "config", "shop", "--topology", path) }
	config().expect(t, exitUsage, file, "at least 16 visible", "without the file")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	tokens := make([]string, 8)
	var all sync.WaitGroup
	for i := range tokens {
		all.Go(func() {
			var err error
			if tokens[i], _, err = makeToken(file); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, token := range tokens {
		if len(token) < minToken || token != tokens[0] {
			t.Errorf("made at once: %q", tokens)
		}
	}
	if names, err := filepath.Glob(filepath.Join(dir, ".policy*")); err != nil || len(names) > 0 {
		t.Errorf("left over: %v %v", names, err)
	}
	t.Setenv(tokenVariable, tokens[0]+"\n")
	if got := config(); strings.Contains(got.errors, "warning") {
		t.Errorf("the same token: %s", got.errors)
	}
	t.Setenv(tokenVariable, "another token, longer")
	config().expect(t, exitNothing, "warning: $"+tokenVariable+" is set")
	call(t, "tfiproxy", "config", "shop", "--topology", path, "--token-file", "/run/x").expect(t, exitNothing, "warning: $"+tokenVariable)
}

// TestWrongToken has a real sidecar that shows another token than the plane wants: who
// waits for it is told, and so is who serves; and it is let in once its file is right.
func TestWrongToken(t *testing.T) {
	dir := t.TempDir()
	path, _ := nativeTopology(t, dir, "")
	runNative(t, path, "shop")
	other := write(t, filepath.Join(dir, "other"), "0123456789abcdef\n")
	refused := []string{"shop", "not connected: it polls from 127.0.0.1 without the token in " + other, "policy.token_file"}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &waiter{text: "not connected", then: cancel}
	var errs bytes.Buffer
	code := doMain(ctx, []string{"serve", "--topology", path, "--policy-token", other, "--otlp", "127.0.0.1:0"}, out, &errs)
	result{code, out.String(), errs.String()}.expect(t, exitNothing, refused...)

	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	flags := planeFlags{otlp: "127.0.0.1:0", wait: 10 * time.Millisecond, policyToken: other}
	a := &app{stdout: io.Discard, stderr: io.Discard}
	spec, top, err := a.load(file, &flags)
	if err != nil {
		t.Fatal(err)
	}
	p, err := startPlane(t.Context(), flags, top, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for changed := p.polls.Changed(); len(p.polls.Strangers()) == 0; changed = p.polls.Changed() {
		<-changed
	}
	_, err = campaign.Check(t.Context(), p.config(spec, top, flags, newProgress(io.Discard)))
	if err == nil || !strings.Contains(err.Error(), "shop: no sidecar is connected: it polls from 127.0.0.1 without the token in "+other) {
		t.Errorf("a campaign says: %v", err)
	}
	write(t, top.PolicyToken, "0123456789abcdef\n")
	for changed := p.polls.Changed(); len(p.polls.Strangers()) > 0; changed = p.polls.Changed() {
		<-changed
	}
	for changed := p.server.Changed(); len(p.server.Sidecars()) == 0; changed = p.server.Changed() {
		<-changed
	}
	if rows := (fleet{p}).Sidecars(); len(rows) != 1 || !rows[0].Connected || rows[0].Refused != "" {
		t.Errorf("%+v", rows)
	}
}
