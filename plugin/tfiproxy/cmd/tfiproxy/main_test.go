package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// output is what a program writes, readable while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestUsage(t *testing.T) {
	good := writeConfig(t, `{"service":"a","inbound":[{"listen":"127.0.0.1:0","upstream":"127.0.0.1:9"}]}`)
	bad := writeConfig(t, `{"inbound":[{"listen":"127.0.0.1:0"}],"odd":1}`)
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{nil, exitUsage, []string{"usage: tfiproxy"}},
		{[]string{"a", "b"}, exitUsage, []string{"usage: tfiproxy"}},
		{[]string{"-nonsense"}, exitUsage, []string{"nonsense"}},
		{[]string{"/does/not/exist"}, exitUsage, []string{"no such file"}},
		{[]string{"/dev/zero"}, exitUsage, []string{"/dev/zero: too large"}},
		{[]string{"-tls-cert", "/dev/zero", "-tls-key", "/dev/zero", good}, exitUsage, []string{"inbound[0].tls.cert:", "/dev/zero: not a regular file"}},
		{[]string{bad}, exitUsage, []string{"service:", "inbound[0].upstream:", "odd:"}},
		{[]string{"-check", good}, exitOK, []string{"ok"}},
		{[]string{"-tls-cert", "a", "-upstream-ca", "b", good}, exitUsage, []string{"-tls-key", "-upstream-tls"}},
		{[]string{"-tls-cert", "/no/a", "-tls-key", "/no/b", good}, exitUsage, []string{"inbound[0].tls.cert:", "inbound[0].tls.key:"}},
		{[]string{"-version"}, exitOK, []string{"tfiproxy"}},
		{[]string{"-h"}, exitOK, []string{"usage: tfiproxy"}},
	} {
		var out output
		if code := doMain(t.Context(), c.args, &out, &out); code != c.code {
			t.Errorf("%v: code %d, want %d", c.args, code, c.code)
		}
		for _, s := range c.says {
			if !strings.Contains(out.String(), s) {
				t.Errorf("%v: says %q, want %q in it", c.args, out.String(), s)
			}
		}
	}
}

// address waits for a line with an address, and returns that.
func (o *output) address(t *testing.T, what string) string {
	t.Helper()
	pattern := regexp.MustCompile(what + ` address=(\S+)`)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if m := pattern.FindStringSubmatch(o.String()); m != nil {
			return m[1]
		}
	}
	t.Fatalf("no %s in %q", what, o.String())
	return ""
}

// build makes the program as the Makefile does; with its symbols if flags say so.
func build(t *testing.T, flags ...string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "tfiproxy")
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-trimpath", "-o", binary}, flags...), ".")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// start runs the program until the test ends.
func start(t *testing.T, binary string, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	out := &output{}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // it has not been waited for
			_ = cmd.Wait()
		}
	})
	return cmd, out
}

// TestDrain sends SIGTERM to a real process while a request is under way: it takes
// no more connections, finishes the request and exits with 0.
func TestDrain(t *testing.T) {
	binary := build(t)
	reached, finish := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(reached)
			<-finish
		}
		_, _ = io.WriteString(w, "done")
	}))
	defer server.Close()
	config := writeConfig(t, fmt.Sprintf(`{"service":"a","admin":"127.0.0.1:0","timeouts":{"tick":"20ms"},
		"inbound":[{"listen":"127.0.0.1:0","upstream":%q}]}`, server.Listener.Addr()))
	cmd, out := start(t, binary, config)
	port, admin := out.address(t, "listening"), out.address(t, "admin")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	get := func(url string) (int, string, error) {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
		if err != nil {
			return 0, "", err
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b), err
	}
	if status, _, err := get("http://" + admin + "/ready"); err != nil || status != 200 {
		t.Errorf("ready: %d, %v", status, err)
	}
	// This connection is idle when the drain begins.
	if _, body, err := get("http://" + port + "/"); err != nil || body != "done" {
		t.Errorf("body %q, %v", body, err)
	}
	type answer struct {
		body string
		err  error
	}
	slow := make(chan answer, 1)
	go func() {
		_, body, err := get("http://" + port + "/slow")
		slow <- answer{body, err}
	}()
	<-reached
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", port)
		if err != nil {
			break
		}
		_ = c.Close()
		if time.Now().After(end) {
			t.Fatal("still takes connections")
		}
	}
	if status, _, err := get("http://" + admin + "/ready"); err != nil || status != 503 {
		t.Errorf("ready while draining: %d, %v", status, err)
	}
	close(finish)
	if a := <-slow; a.err != nil || a.body != "done" {
		t.Errorf("the request under way got %q, %v", a.body, a.err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}
