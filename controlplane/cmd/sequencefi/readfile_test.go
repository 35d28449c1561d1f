package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := readFile(path, 5); err != nil || string(b) != "12345" {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := readFile(path, 4); err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
		t.Errorf("error %v, want one that names the limit", err)
	}
	// A device has no size and no end.
	if _, err := readFile("/dev/zero", 1<<10); err == nil {
		t.Error("read all of /dev/zero")
	}
}
