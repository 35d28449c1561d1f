package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// startProcess builds the program and runs it until the test ends. It returns its
// ports, in the configuration's order.
func startProcess(t *testing.T, config string) (ports []string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tfiproxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out output
	cmd := exec.Command(binary, writeConfig(t, config))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // or it has ended, which Wait says
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
	})
	listening := regexp.MustCompile(`listening address=(\S+)`)
	want := strings.Count(config, `"listen"`)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		found := listening.FindAllStringSubmatch(out.String(), -1)
		if len(found) < want {
			continue
		}
		for _, m := range found {
			ports = append(ports, m[1])
		}
		return ports
	}
	t.Fatalf("not listening: %q", out.String())
	return nil
}

// startCallee answers in both protocols, with the frame size that h2spec takes for granted.
func startCallee(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Protocols: &both, HTTP2: &http.HTTP2Config{MaxReadFrameSize: 1 << 14},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "some bytes")
		}),
	}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	return l.Addr().String()
}

// tool returns a program that `make` puts into .tools/bin.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../../../.tools/bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		how := fmt.Sprintf("no %s: make .tools/bin/%s", name, name)
		if os.Getenv("CI") == "true" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	return path
}

// h2spec runs cases, all if none is named, and returns how many it ran and those
// that failed with what came instead. A case's name is that by which h2spec runs it.
func h2spec(t *testing.T, addr string, seconds int, cases ...string) (ran int, failed map[string]string) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "junit.xml")
	args := append([]string{"--strict", "-p", port, "-o", fmt.Sprint(seconds), "-j", report}, cases...)
	out, err := exec.CommandContext(t.Context(), tool(t, "h2spec"), args...).CombinedOutput()
	b, readErr := os.ReadFile(report)
	if readErr != nil {
		t.Fatalf("%v, %v\n%s", err, readErr, out)
	}
	var suites struct {
		Suites []struct {
			ID    string `xml:"id,attr"`
			Cases []struct {
				Package     string    `xml:"package,attr"`
				Description string    `xml:"classname,attr"`
				Failure     string    `xml:"failure"`
				Error       string    `xml:"error"`
				Skipped     *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &suites); err != nil {
		t.Fatal(err)
	}
	failed = map[string]string{}
	for _, s := range suites.Suites {
		for i, c := range s.Cases {
			if c.Skipped != nil {
				continue
			}
			ran++
			if why := c.Failure + c.Error; why != "" {
				failed[fmt.Sprintf("%s/%d", c.Package, i+1)] = c.Description + ": " + strings.ReplaceAll(why, "\n", "; ")
			}
		}
	}
	return ran, failed
}

// TestH2Spec runs all of h2spec against the program, with Go's HTTP/2 server behind
// it. Those cases fail that testdata/h2spec.txt gives reasons for, and no others: one
// that begins to pass must leave the list.
func TestH2Spec(t *testing.T) {
	addr := startProcess(t, fmt.Sprintf(`{"service":"a","inbound":[{"listen":"127.0.0.1:0","upstream":%q}]}`, startCallee(t)))[0]
	b, err := os.ReadFile("testdata/h2spec.txt")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || name == "#" {
			continue
		}
		if reasons[name] = strings.TrimSpace(why); reasons[name] == "" {
			t.Errorf("%s: no reason", name)
		}
	}
	ran, failed := h2spec(t, addr, 1)
	if ran < 140 {
		t.Fatalf("only %d cases ran", ran)
	}
	// A second may be too little on a busy machine.
	for name := range failed {
		if reasons[name] != "" {
			continue
		}
		if n, again := h2spec(t, addr, 10, name); n == 1 && len(again) == 0 {
			delete(failed, name)
		}
	}
	t.Logf("%d of %d cases passed", ran-len(failed), ran)
	if d := cmp.Diff(slices.Sorted(maps.Keys(reasons)), slices.Sorted(maps.Keys(failed))); d != "" {
		t.Errorf("cases of testdata/h2spec.txt (-) and cases that fail (+):\n%s", d)
		for name, why := range failed {
			if reasons[name] == "" {
				t.Errorf("%s: %s", name, why)
			}
		}
	}
}
