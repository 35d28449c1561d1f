package ecds

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestModuleFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin.wasm")
	content := "\x00asm\x01\x00\x00\x00"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := ReadModule(path)
	if err != nil {
		t.Fatal(err)
	}
	const sum = "93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476" // sha256sum of the eight bytes
	if m.SHA256() != sum || m.Size() != 8 {
		t.Errorf("sha256 %s, size %d", m.SHA256(), m.Size())
	}
	s := m.Source("127.0.0.1:8080", "c")
	if s.URI != "http://127.0.0.1:8080/module/"+sum+".wasm" || s.SHA256 != sum || s.Cluster != "c" || s.Validate() != nil {
		t.Errorf("source %+v", s)
	}
	for _, tc := range []struct {
		method, path string
		status       int
		body         string
	}{
		{http.MethodGet, m.Path(), 200, content},
		{http.MethodHead, m.Path(), 200, ""},
		{http.MethodPost, m.Path(), 405, "only GET and HEAD\n"},
		{http.MethodGet, "/module/" + strings.Repeat("0", 64) + ".wasm", 404, "404 page not found\n"},
		{http.MethodGet, "/", 404, "404 page not found\n"},
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, nil))
		body, _ := io.ReadAll(w.Body)
		if w.Code != tc.status || string(body) != tc.body {
			t.Errorf("%s %s: %d %q, want %d %q", tc.method, tc.path, w.Code, body, tc.status, tc.body)
		}
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadModule(path); !errors.Is(err, ErrNotWasm) {
		t.Errorf("a script: %v", err)
	}
	if _, err := ReadModule(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
