package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// readToken returns the token that TFIProxies must show, and where it is: in the file named,
// the environment, or the topology's file.
// Errors: errToken; those of reading the file.
func readToken(file string, t *topology.Topology) (token, where string, err error) {
	if own := os.Getenv(tokenVariable); file == "" && own != "" {
		token, err = checkToken(own, "$"+tokenVariable)
		return token, "$" + tokenVariable, err
	}
	if file == "" {
		file = t.PolicyToken
	}
	if file == "" {
		return "", "", fmt.Errorf("%w: name a file by --policy-token, since the topology has no TFIProxy", errToken)
	}
	token, err = tokenIn(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (sequencefi tfiproxy config makes the topology's, --policy-token names another)", err)
	}
	return token, file, err
}

func tokenIn(file string) (string, error) {
	b, err := bounded.File(file, maxToken)
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

// overridden says that the environment has another token than the one that a sidecar is told
// to show, which is empty if it cannot be told; empty: it has not.
func overridden(token string) string {
	own := strings.TrimSpace(os.Getenv(tokenVariable))
	if own == "" || own == token {
		return ""
	}
	return fmt.Sprintf("$%s is set: commands take the token from there, so that the sidecar's token file must hold that one (--policy-token names a file that goes first)", tokenVariable)
}

// makeToken writes a token if there is no file yet, and says whether it did. The file is
// whole as soon as it is there.
// Errors: errToken where the file that is there has none.
func makeToken(file string) (token string, made bool, err error) {
	if token, err := tokenIn(file); !errors.Is(err, fs.ErrNotExist) {
		return token, false, removable(err)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".policy-token-*")
	if err != nil {
		return "", false, fmt.Errorf("policy token: %w", err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	token = rand.Text() + rand.Text()
	_, err = temp.WriteString(token + "\n")
	if err := errors.Join(err, temp.Close()); err != nil {
		return "", false, fmt.Errorf("policy token: %w", err)
	}
	err = os.Link(temp.Name(), file)
	if errors.Is(err, fs.ErrExist) { // another call was faster
		token, err = tokenIn(file)
		return token, false, removable(err)
	}
	if err != nil {
		return "", false, fmt.Errorf("policy token: %w", err)
	}
	return token, true, nil
}

// removable says what to do about a file without a token. One that only others may read is
// not judged.
func removable(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil
	case errors.Is(err, errToken):
		return fmt.Errorf("%w (without the file a new token is made)", err)
	}
	return err
}
