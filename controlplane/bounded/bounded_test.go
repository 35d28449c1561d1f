package bounded

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := File(path, 5); err != nil || string(b) != "12345" {
		t.Errorf("got %q, %v", b, err)
	}
	_, err := File(path, 4)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "more than 4 bytes") || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names the file and the limit", err)
	}
	// A device has no size and no end.
	if _, err := File("/dev/zero", 1<<10); !errors.Is(err, ErrTooLarge) {
		t.Errorf("/dev/zero: error %v", err)
	}
	if _, err := File(path+"x", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: error %v", err)
	}
	dir := filepath.Dir(path)
	if _, err := File(dir, 5); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder: error %v, want one that names it", err)
	}
}

func TestReadFails(t *testing.T) {
	if _, err := Read(iotest.ErrReader(io.ErrUnexpectedEOF), 5); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}
