package main

import (
	"fmt"
	"io"
	"os"
)

// readFile reads a file of at most `most` bytes. Its size is not asked for: that
// of a pipe or a device is unknown.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%s: more than %d bytes, the most that are taken", path, most)
	}
	return b, nil
}
