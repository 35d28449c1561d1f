package tfiproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inside marks the process that runs in a network namespace of its own.
const inside = "SEQUENCEFI_REDIRECT_TEST"

// TestRedirect runs itself again in a new network namespace, where a real sidecar
// is put in front of connections that know nothing of it.
func TestRedirect(t *testing.T) {
	if os.Getenv(inside) != "" {
		redirected(t)
		return
	}
	for _, need := range [][2]string{{"nft", "nftables"}, {"ip", "iproute2"}, {"nsenter", "util-linux"}} {
		if _, err := exec.LookPath(need[0]); err != nil {
			missing(t, "needs "+need[0]+": apt-get install "+need[1])
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestRedirect$", "-test.v", "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		missing(t, "needs CAP_SYS_ADMIN for a network namespace: "+err.Error())
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		missing(t, string(out))
	}
}

func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

const (
	here  = "10.99.0.1" // this namespace, with the service and its sidecar
	there = "10.99.0.2" // another one, with its client and with what it calls
	uid   = "65534"
	// The same as above, by IPv6.
	here6  = "fd99::1"
	there6 = "fd99::2"
)

func redirected(t *testing.T) {
	// The other namespace is that of a process that does nothing.
	other := exec.CommandContext(t.Context(), "sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	pid := fmt.Sprint(other.Process.Pid)
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", pid)
	run(t, "ip", "addr", "add", here+"/24", "dev", "v0")
	run(t, "ip", "addr", "add", here6+"/64", "dev", "v0", "nodad")
	run(t, "ip", "link", "set", "v0", "up")
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", there + "/24", "dev", "v1"},
		{"addr", "add", there6 + "/64", "dev", "v1", "nodad"},
		{"link", "set", "v1", "up"},
	} {
		run(t, "nsenter", append([]string{"-t", pid, "-n", "ip"}, args...)...)
	}

	// The service, and over there what it calls: this program again.
	service := httpServer(t, "service")
	callee := startSelf(t, pid, "callee")

	binary := filepath.Join(t.TempDir(), "tfiproxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/sequencefi/sequencefi/plugin/tfiproxy/cmd/tfiproxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := filepath.Join(filepath.Dir(binary), "config.json")
	text := `{"service": "shop", "admin": "127.0.0.1:15000",
		"inbound": [{"listen": "[::]:15006", "transparent": true}],
		"outbound": [{"listen": "127.0.0.1:15001", "transparent": true}, {"listen": "[::1]:15001", "transparent": true}]}`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(binary); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // another user runs it
			t.Fatal(err)
		}
	}
	sidecar := exec.CommandContext(t.Context(), binary, config)
	sidecar.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := sidecar.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sidecar.Process.Kill(); _ = sidecar.Wait() }()
	counts := func() (requests string) {
		text := get(t, "http://127.0.0.1:15000/metrics")
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(line, `sequencefi_requests_total{protocol="http1"} `); ok {
				return strings.TrimSpace(v)
			}
		}
		return "none"
	}
	want := func(what, got, expected string) {
		t.Helper()
		if got != expected {
			t.Errorf("%s: %q, want %q", what, got, expected)
		}
	}
	want("without rules, out", get(t, "http://"+there+":"+callee+"/"), "callee")
	want("requests seen", counts(), "0")

	run(t, "./redirect.sh", "up", "--uid", uid, "--inbound", "15006", "--outbound", "15001", "--pass", "15000")
	want("out", get(t, "http://"+there+":"+callee+"/"), "callee")
	want("requests seen", counts(), "1")
	want("in", run(t, "nsenter", "-t", pid, "-n", os.Args[0], "-test.run", "^TestGet$", "-test.v=false", "-get", "http://"+here+":"+service+"/"), "service")
	want("requests seen", counts(), "2")
	want("out by IPv6", get(t, "http://["+there6+"]:"+callee+"/"), "callee")
	want("requests seen", counts(), "3")
	want("in by IPv6", run(t, "nsenter", "-t", pid, "-n", os.Args[0], "-test.run", "^TestGet$", "-test.v=false", "-get", "http://["+here6+"]:"+service+"/"), "service")
	want("requests seen", counts(), "4")

	// Twice is as good as once, and after down nothing is left.
	run(t, "./redirect.sh", "up", "--uid", uid, "--inbound", "15006", "--outbound", "15001")
	run(t, "./redirect.sh", "down")
	run(t, "./redirect.sh", "down")
	want("rules left", strings.TrimSpace(run(t, "nft", "list", "ruleset")), "")
	want("without rules again", get(t, "http://"+there+":"+callee+"/"), "callee")
	want("requests seen", counts(), "4")
}

// get fetches a page over a connection of its own, and waits for its server first.
func get(t *testing.T, url string) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			if time.Now().After(end) {
				t.Fatal(err)
			}
			continue
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func httpServer(t *testing.T, says string) (port string) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, says)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}
