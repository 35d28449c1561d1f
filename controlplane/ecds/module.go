package ecds

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// ErrNotWasm says that a file is not a WebAssembly module.
var ErrNotWasm = errors.New("not a WebAssembly module")

// ModuleFile is a plugin in memory, for serving to sidecars: it stays what its
// hash says, whatever becomes of the file. It is an http.Handler for its own
// path and 404 for all others.
type ModuleFile struct {
	content []byte
	sum     string
	read    time.Time
}

var _ http.Handler = (*ModuleFile)(nil)

// maxModule bounds a plugin; the one that is built has some MiB.
const maxModule = 256 << 20

var wasmMagic = []byte("\x00asm")

// ReadModule reads a plugin.
//
// Errors: ErrNotWasm; those of bounded.File.
func ReadModule(path string) (*ModuleFile, error) {
	content, err := bounded.File(path, maxModule)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(content, wasmMagic) {
		return nil, fmt.Errorf("%s: %w", path, ErrNotWasm)
	}
	sum := sha256.Sum256(content)
	return &ModuleFile{content: content, sum: hex.EncodeToString(sum[:]), read: time.Now()}, nil
}

// SHA256 of the module in hex.
func (m *ModuleFile) SHA256() string { return m.sum }

// Size of the module in bytes.
func (m *ModuleFile) Size() int { return len(m.content) }

// Path under which the module is served. It has the hash, so another module has
// another path and a cache in between cannot confuse them.
func (m *ModuleFile) Path() string { return "/module/" + m.sum + ".wasm" }

// Source is the module as sidecars fetch it from the HTTP address (host:port) at
// which this handler is served; cluster as in gate.Module.
func (m *ModuleFile) Source(address, cluster string) gate.Module {
	uri := url.URL{Scheme: "http", Host: address, Path: m.Path()}
	return gate.Module{URI: uri.String(), Cluster: cluster, SHA256: m.sum}
}

// ServeHTTP serves GET and HEAD of Path.
func (m *ModuleFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != m.Path() {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/wasm")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("ETag", `"`+m.sum+`"`)
	http.ServeContent(w, r, "", m.read, bytes.NewReader(m.content))
}
