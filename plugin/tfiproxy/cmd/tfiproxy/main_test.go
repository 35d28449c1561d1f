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
		{[]string{bad}, exitUsage, []string{"service:", "inbound[0].upstream:", "odd:"}},
		{[]string{"-check", good}, exitOK, []string{"ok"}},
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

// TestDrain sends SIGTERM to a real process while a request is under way: it takes
// no more connections, finishes the request and exits with 0.
func TestDrain(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "tfiproxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
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
	var out output
	cmd := exec.CommandContext(t.Context(), binary, config)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := func(what string) string {
		pattern := regexp.MustCompile(what + ` address=(\S+)`)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if m := pattern.FindStringSubmatch(out.String()); m != nil {
				return m[1]
			}
		}
		t.Fatalf("no %s in %q", what, out.String())
		return ""
	}
	port, admin := address("listening"), address("admin")
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

// TestLinked says what must not be in the binary: the path of every message goes
// through none of it, and its memory is the sidecar's.
func TestLinked(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	b, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(b)) {
		for _, no := range []string{
			"net/http", "crypto/tls", "golang.org/x/net/http2$", "google.golang.org/grpc",
			"google.golang.org/protobuf/proto$", "google.golang.org/protobuf/reflect", "google.golang.org/protobuf/internal/impl",
			"github.com/sequencefi/sequencefi/proto", "github.com/sequencefi/sequencefi/controlplane",
			"github.com/sequencefi/sequencefi/plugin/wasm",
		} {
			exact := strings.HasSuffix(no, "$")
			no = strings.TrimSuffix(no, "$")
			if p == no || !exact && strings.HasPrefix(p, no+"/") {
				t.Errorf("%s is linked in", p)
			}
		}
	}
}
