package tfiproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/sequencefi/sequencefi/plugin/tfiproxy/config"
)

// What files may hold, in bytes. Those who name a device by mistake must not cost the
// sidecar its memory.
const (
	maxConfigFile = 4 << 20
	maxPolicyFile = maxReply
	maxPEMFile    = 4 << 20 // the authorities of a whole host are some 250 KB
	maxTokenFile  = 4 << 10
)

var (
	errTooLarge   = errors.New("too large")
	errNotRegular = errors.New("not a regular file")
)

// LoadConfig reads and parses a configuration file. It may be a pipe, as a shell makes of
// <(sequencefi tfiproxy config ...).
//
// Errors: those of reading it; a [*config.Error].
func LoadConfig(name string) (*Config, error) {
	f, err := os.Open(name) //nolint:gosec // the user's own file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := readAtMost(f, maxConfigFile)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return cfg, nil
}

// readFile reads a file that is looked at again and again while the sidecar runs. A pipe
// would hold up its end, so that nothing but a regular file is read.
//
// Errors: those of reading it; errNotRegular; errTooLarge.
func readFile(name string, most int64) ([]byte, error) {
	// Without O_NONBLOCK opening a pipe waits for whoever writes to it.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the user's own file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", name, errNotRegular)
	}
	return readAtMost(f, most)
}

func readAtMost(f *os.File, most int64) ([]byte, error) {
	var b bytes.Buffer
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() <= most {
		b.Grow(int(info.Size()) + bytes.MinRead) // read in one go
	}
	if _, err := b.ReadFrom(io.LimitReader(f, most+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > most {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", f.Name(), errTooLarge, most)
	}
	return b.Bytes(), nil
}
