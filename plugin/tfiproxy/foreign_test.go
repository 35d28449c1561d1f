package tfiproxy

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestCurl has curl as a client, over both protocols.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no curl: apt-get install curl")
		}
		t.Skip("no curl: apt-get install curl")
	}
	p := startProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what is missing is seen
		_, _ = w.Write(b)
	})))
	for _, args := range [][]string{
		{"--http1.1"},
		{"--http1.0"},
		{"--http2-prior-knowledge"},
		{"--http2"},
		{"--http1.1", "-H", "Expect: 100-continue"},
		{"--http1.1", "-H", "Transfer-Encoding: chunked"},
	} {
		body := strings.Repeat("some bytes ", 20000)
		cmd := exec.CommandContext(t.Context(), curl, append(args, "-sS", "--max-time", "10", "--data-binary", "@-", "http://"+p.Addr(0).String()+"/")...)
		cmd.Stdin = strings.NewReader(body)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != body {
			t.Errorf("%v: %d bytes of %d, %v: %.200s", args, len(out), len(body), err, out)
		}
	}
}
