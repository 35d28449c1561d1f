package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNoTool says that a program is not there; its text says how to get it.
var ErrNoTool = errors.New("program not found")

// Tool returns the path of a program that `make NAME` builds: that in the
// environment variable env, else .tools/bin/NAME in the working directory or a
// folder above it.
//
// Errors: ErrNoTool.
func Tool(name, env string) (string, error) {
	if own := os.Getenv(env); own != "" {
		if _, err := os.Stat(own); err != nil {
			return "", fmt.Errorf("%s: %w", env, err)
		}
		return own, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, ".tools", "bin", name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("%w: %s: run `make %s`, or set %s to its path", ErrNoTool, name, name, env)
		}
		dir = up
	}
}
