package envoy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Version is the stock Envoy that SequenceFI is developed against.
const Version = "1.40.0"

// ErrNotFound says that there is no Envoy binary; its text says how to get one.
var ErrNotFound = errors.New("no Envoy binary")

// Find returns the path of an Envoy binary of the version: that in the
// environment variable ENVOY for [Version], else .tools/envoy/VERSION/envoy in
// the working directory or a folder above it.
//
// Errors: ErrNotFound.
func Find(version string) (string, error) {
	if own := os.Getenv("ENVOY"); own != "" && version == Version {
		if _, err := os.Stat(own); err != nil {
			return "", fmt.Errorf("ENVOY: %w", err)
		}
		return own, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, ".tools", "envoy", version, "envoy")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			get := fmt.Sprintf("run `.ci/fetch-envoy %s`", version)
			if version == Version {
				get = "run `make envoy`, or set ENVOY to the path of one"
			}
			return "", fmt.Errorf("%w of version %s: %s", ErrNotFound, version, get)
		}
		dir = up
	}
}
