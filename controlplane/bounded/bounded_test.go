package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
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
	if _, err := File(path+"x", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: error %v", err)
	}
	dir := filepath.Dir(path)
	if _, err := File(dir, 5); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder: error %v, want one that names it", err)
	}
}

// TestWhatWaitsIsNoFile: nobody writes to the pipe, and a device has no end.
func TestWhatWaitsIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "s")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir) // the name of a socket must be short
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, path := range []string{pipe, socket, "/dev/zero"} {
		done := make(chan error, 1)
		go func() {
			_, err := File(path, 5)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: error %v", path, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: it waits", path)
		}
	}
}

// TestInheritedPipe: a shell makes one of <(...), and of what is piped to /dev/stdin.
func TestInheritedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := w.WriteString("12345"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := File(fmt.Sprintf("/dev/fd/%d", r.Fd()), 5); err != nil || string(b) != "12345" {
		t.Errorf("got %q, %v", b, err)
	}
}

// TestInheritedDevice: it has no size and no end.
func TestInheritedDevice(t *testing.T) {
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := File(fmt.Sprintf("/dev/fd/%d", f.Fd()), 1<<10); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v", err)
	}
}

func TestReadFails(t *testing.T) {
	if _, err := Read(iotest.ErrReader(io.ErrUnexpectedEOF), 5); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}
