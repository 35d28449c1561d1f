// Package bounded reads input that may be larger than anybody can use.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// ErrTooLarge says that input has more bytes than are taken.
var ErrTooLarge = errors.New("too large")

// ErrNotRegular says that a name is that of a pipe, a socket or a device.
var ErrNotRegular = errors.New("must be a regular file")

// File reads a regular file of at most `most` bytes. One that this process was started with,
// as /dev/stdin or what a shell makes of <(...), may be a pipe or a device, whose size is
// unknown.
//
// Errors: those of opening and reading it, which name the file; ErrNotRegular; ErrTooLarge.
func File(path string, most int64) ([]byte, error) {
	inherited := isInherited(path)
	flag := os.O_RDONLY
	if !inherited {
		flag |= syscall.O_NONBLOCK // to open a pipe is to wait for whoever writes to it, and no signal ends that
	}
	f, err := os.OpenFile(path, flag, 0) //nolint:gosec // the caller's own file
	if errors.Is(err, syscall.ENXIO) {   // a socket cannot be opened
		return nil, fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if !inherited {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() && !info.IsDir() { // to read a folder fails, and says that it is one
			return nil, fmt.Errorf("%s: %w", path, ErrNotRegular)
		}
	}
	b, err := Read(f, most)
	if errors.Is(err, ErrTooLarge) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, err
}

// isInherited says whether path names a file that this process has open already.
func isInherited(path string) bool {
	path = filepath.Clean(path)
	switch filepath.Dir(path) {
	case "/dev/fd", "/proc/self/fd":
		return true
	}
	return path == "/dev/stdin"
}

// Read reads r to its end, and at most `most` bytes of it.
//
// Errors: those of r; ErrTooLarge.
func Read(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%w: more than %d bytes, the most that are taken", ErrTooLarge, most)
	}
	return b, nil
}
