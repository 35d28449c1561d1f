package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// tokenVariable has the token itself, for those who keep secrets so.
const tokenVariable = "SEQUENCEFI_POLICY_TOKEN"

const (
	// minToken keeps tokens from being guessed; the ones that are made have more.
	minToken = 16
	maxToken = 4 << 10
)

// errToken says that there is no usable token for polls.
var errToken = errors.New("no usable policy token")

// readToken returns the token that TFIProxies must show: that of the file named, of the
// environment, or of the topology's file.
// Errors: errToken; those of reading the file.
func readToken(file string, t *topology.Topology) (string, error) {
	if own := os.Getenv(tokenVariable); file == "" && own != "" {
		return checkToken(own, "$"+tokenVariable)
	}
	if file == "" {
		file = t.PolicyToken
	}
	if file == "" {
		return "", fmt.Errorf("%w: name a file by --policy-token, since the topology has no TFIProxy", errToken)
	}
	b, err := bounded.File(file, maxToken)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("policy token: %w (sequencefi tfiproxy config makes the topology's, --policy-token names another)", err)
	}
	if err != nil {
		return "", fmt.Errorf("policy token: %w", err)
	}
	return checkToken(string(b), file)
}

// checkToken takes white space off the ends, as sidecars do.
func checkToken(text, where string) (string, error) {
	token := strings.TrimSpace(text)
	if len(token) < minToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%w: %s must have at least %d visible ASCII characters and nothing else", errToken, where, minToken)
	}
	return token, nil
}

// makeToken writes a token if there is no file yet, and says whether it did.
func makeToken(file string) (made bool, err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("policy token: %w", err)
	}
	_, err = f.WriteString(rand.Text() + rand.Text() + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("policy token: %w", errors.Join(err, os.Remove(file)))
	}
	return true, nil
}
