package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTLSFlags runs two sidecars as processes, which TLS connects by flags alone, and
// sends one SIGHUP: it reads its certificate again, and goes on.
func TestTLSFlags(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }))
	defer plain.Close()
	// Go's test server has a certificate for example.com.
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	pair := secure.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	for name, b := range map[string][]byte{cert: good, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := build(t)
	callee, calleeOut := start(t, binary, "-tls-cert", cert, "-tls-key", key,
		writeConfig(t, fmt.Sprintf(`{"service":"b","inbound":[{"listen":"127.0.0.1:0","upstream":%q}]}`, plain.Listener.Addr())))
	_, callerOut := start(t, binary, "-upstream-tls", "-upstream-ca", cert, "-upstream-name", "example.com",
		writeConfig(t, fmt.Sprintf(`{"service":"a","outbound":[{"listen":"127.0.0.1:0","cluster":"b","upstream":%q}]}`, calleeOut.address(t, "listening"))))
	url := "http://" + callerOut.address(t, "listening")
	get := func() {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "done" {
			t.Fatalf("%d %q, %v\n%s%s", resp.StatusCode, b, err, calleeOut, callerOut)
		}
	}
	get()
	if err := os.WriteFile(cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := callee.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !strings.Contains(calleeOut.String(), "inbound[0].tls.cert"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nothing is said of the bad file: %s", calleeOut)
		}
	}
	get()
}
