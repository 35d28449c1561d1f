package demo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// products builds, once for all tests, the sequencefi command, the plugin
// beside it and the native sidecar from the working tree.
var products = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "sequencefi-demo-"); err != nil {
		return "", err
	}
	built.Store(dir, true)
	command := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "sequencefi"),
		"github.com/sequencefi/sequencefi/controlplane/cmd/sequencefi")
	native := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "tfiproxy"),
		"github.com/sequencefi/sequencefi/plugin/tfiproxy/cmd/tfiproxy")
	plugin := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-ldflags", "-s -w", "-o", filepath.Join(dir, "sequencefi.wasm"),
		"github.com/sequencefi/sequencefi/plugin/wasm/cmd/plugin")
	plugin.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	for _, cmd := range []*exec.Cmd{command, native, plugin} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", errors.Join(err, errors.New(string(out)))
		}
	}
	return dir, nil
})

// built folders are removed by TestMain.
var built sync.Map

func product(t *testing.T) (command, plugin string) {
	t.Helper()
	dir, err := products()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "sequencefi"), filepath.Join(dir, "sequencefi.wasm")
}

// nativeSidecar is the path of TFIProxy.
func nativeSidecar(t *testing.T) string {
	t.Helper()
	command, _ := product(t)
	return filepath.Join(filepath.Dir(command), "tfiproxy")
}

// slow skips a test with -short: the plugin is compiled by four Envoys, which
// alone takes a quarter of a minute on two cores.
func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole campaign: run it without -short")
	}
}
