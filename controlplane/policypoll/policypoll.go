// Package policypoll serves policies to sidecars that poll for them over HTTP:
// native ones, which speak no xDS. It is an http.Handler and keeps no policy itself.
//
// Read first: [Handler] and [Source].
//
//	GET /v1/policy/{service}?instance=NAME&version=ETAG
//	authorization: Bearer TOKEN
//
//	200  etag and a serialised sequencefi.tfi.v1.Policy, at once if ETAG is not its version
//	204  nothing has changed for as long as a poll waits
//	404  the service has no policy any more: the sidecar drops its own
//	401  the token is wrong; 400 something else is
//
// Every 200, 204 and 404 says in x-sequencefi-ttl for how many seconds it holds: the
// outer fence. A poll waits a third of that, so that a living plane is heard of in time.
package policypoll

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Source is who knows the policies.
type Source interface {
	// Policy returns the current policy of a service as it is to be sent now, with no
	// more of each activation's lifetime than is left and none that has expired; nil
	// if the service has none. It is not changed after that.
	Policy(service string) *tfiv1.Policy
	// Changed returns a channel that is closed at the next change of any policy. Who
	// asks for it before Policy misses none.
	Changed() <-chan struct{}
	// Polled is told that a sidecar asks, and which version it has in force; empty:
	// none. It is the sidecar's acknowledgement of that version.
	Polled(service, instance, version string)
}

// TTLHeader says for how many seconds an answer holds.
const TTLHeader = "x-sequencefi-ttl"

// Path is the prefix of all resources.
const Path = "/v1/policy/"

// Config of a [Handler].
type Config struct {
	Source Source
	// Token that sidecars must show; required.
	Token string
	// TTL of policies; 0 means 15 s, and it must be at least 1 s.
	TTL time.Duration
}

// ErrConfig says that a [Config] cannot be used.
var ErrConfig = errors.New("invalid policy poll configuration")

// Handler serves the protocol. It is safe for concurrent use.
type Handler struct {
	source Source
	token  [sha256.Size]byte
	ttl    time.Duration
	mux    *http.ServeMux
}

var _ http.Handler = (*Handler)(nil)

// New returns a handler. Errors: ErrConfig, once for each thing that is wrong.
func New(c Config) (*Handler, error) {
	var errs []error
	if c.Source == nil {
		errs = append(errs, fmt.Errorf("%w: source: must be set", ErrConfig))
	}
	if c.Token == "" {
		errs = append(errs, fmt.Errorf("%w: token: must not be empty, or anybody could read activation keys", ErrConfig))
	}
	if c.TTL == 0 {
		c.TTL = 15 * time.Second
	}
	if c.TTL < time.Second {
		errs = append(errs, fmt.Errorf("%w: ttl: must be at least 1s, is %v", ErrConfig, c.TTL))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	h := &Handler{source: c.Source, token: sha256.Sum256([]byte(c.Token)), ttl: c.TTL, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET "+Path+"{service}", h.poll)
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *Handler) poll(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	// Hashes have one length, so that the comparison tells nothing about the token's.
	got := sha256.Sum256([]byte(token))
	if !ok || subtle.ConstantTimeCompare(got[:], h.token[:]) != 1 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
		return
	}
	service, query := r.PathValue("service"), r.URL.Query()
	instance, version := query.Get("instance"), query.Get("version")
	if instance == "" {
		http.Error(w, "instance must name the sidecar", http.StatusBadRequest)
		return
	}
	h.source.Polled(service, instance, version)
	timer := time.NewTimer(h.ttl / 3)
	defer timer.Stop()
	for {
		changed := h.source.Changed()
		p := h.source.Policy(service)
		switch {
		case p == nil && version != "":
			h.answer(w, http.StatusNotFound)
			return
		case p != nil && p.GetVersion() != version:
			h.send(w, p)
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			h.answer(w, http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (h *Handler) answer(w http.ResponseWriter, status int) {
	w.Header().Set(TTLHeader, strconv.FormatFloat(h.ttl.Seconds(), 'f', -1, 64))
	w.WriteHeader(status)
}

func (h *Handler) send(w http.ResponseWriter, p *tfiv1.Policy) {
	b, err := proto.Marshal(p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Etag", p.GetVersion())
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	h.answer(w, http.StatusOK)
	_, _ = w.Write(b) // a sidecar that has gone asks again
}
