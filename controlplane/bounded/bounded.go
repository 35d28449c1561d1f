// Package bounded reads input that may be larger than anybody can use.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrTooLarge says that input has more bytes than are taken.
var ErrTooLarge = errors.New("too large")

// File reads a file of at most `most` bytes. Its size is not asked for: that of a pipe or a
// device is unknown.
//
// Errors: those of opening and reading it, which name the file; ErrTooLarge.
func File(path string, most int64) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the caller's own file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := Read(f, most)
	if errors.Is(err, ErrTooLarge) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, err
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
