// Package policypoll serves policies to sidecars that poll for them over HTTP:
// native ones, which speak no xDS. It is an http.Handler and keeps no policy itself.
//
// Read first: [Handler] and [Source]. [Handler.Strangers] are those that have not the token.
//
//	GET /v1/policy/{service}?instance=NAME&version=ETAG&refused=ETAG&reason=TEXT
//	authorization: Bearer TOKEN
//	user-agent: PROXY/VERSION
//
// version is the policy in force at the sidecar, refused a later one that it could not
// use, with the reason; what there is not is left out. So each poll acknowledges or
// refuses the answer before it. Answers, at once or when there is something to tell:
//
//	200  etag and a serialised sequencefi.tfi.v1.Policy, which replaces what it has
//	204  nothing has changed for as long as a poll waits, which is 10 s at most
//	410  the service has no policy any more: the sidecar drops its own
//	409  another poll came under the same name; 401 the token is wrong; 400 something
//	     else is; 503 the plane is going
//
// x-sequencefi-ttl says for how many seconds what the sidecar has then holds from now
// on: the outer fence. A 204 without it prolongs nothing.
//
// All sidecars share one token, which says that a sidecar asks and not which one. So each
// of them can read the policies, with the keys, of every service; and under the names of
// another it can take that one's place: its poll then ends with 409, and what is said for
// it counts. A version that the plane has not given acknowledges nothing.
package policypoll

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
)

// Source is who knows the policies.
type Source interface {
	// Poll returns when there is something to tell the sidecar, and before it would
	// take the plane for dead. Errors: ecds.ErrPoll, ecds.ErrReplaced, ecds.ErrClosed; ctx's.
	Poll(ctx context.Context, p ecds.Poll) (ecds.Told, error)
}

var _ Source = (*ecds.Server)(nil)

// TTLHeader says for how many seconds an answer holds.
const TTLHeader = "x-sequencefi-ttl"

// Path is the prefix of all resources.
const Path = "/v1/policy/"

// Config of a [Handler].
type Config struct {
	Source Source
	// Token that sidecars must show; required.
	Token string
	// Logger is told of sidecars without it, each once; nil: nobody is.
	Logger *slog.Logger
}

// ErrConfig says that a [Config] cannot be used.
var ErrConfig = errors.New("invalid policy poll configuration")

// Handler serves the protocol. It is safe for concurrent use.
type Handler struct {
	source    Source
	token     [sha256.Size]byte
	log       *slog.Logger
	mux       *http.ServeMux
	strangers *strangers
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
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	h := &Handler{
		source: c.Source, token: sha256.Sum256([]byte(c.Token)), log: c.Logger,
		mux: http.NewServeMux(), strangers: newStrangers(),
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
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
		if one, first := h.strangers.met(r); first {
			h.log.Warn("poll without the token", "service", one.Service, "instance", one.Instance, "from", one.From, "proxy", one.Proxy)
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
		return
	}
	h.strangers.admitted(r)
	query := r.URL.Query()
	proxy, version, _ := strings.Cut(r.UserAgent(), "/")
	told, err := h.source.Poll(r.Context(), ecds.Poll{
		Service: r.PathValue("service"), Instance: query.Get("instance"), Proxy: proxy, ProxyVersion: version,
		Holds: query.Get("version"), Refused: query.Get("refused"), Reason: query.Get("reason"),
	})
	if err != nil {
		refuse(w, err)
		return
	}
	if told.TTL > 0 {
		w.Header().Set(TTLHeader, strconv.FormatFloat(told.TTL.Seconds(), 'f', -1, 64))
	}
	switch {
	case told.Drop:
		w.WriteHeader(http.StatusGone)
	case told.Version == "":
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Etag", told.Version)
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.Header().Set("Content-Length", strconv.Itoa(len(told.Policy)))
		_, _ = w.Write(told.Policy) // a sidecar that has gone asks again
	}
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, ecds.ErrPoll):
		status = http.StatusBadRequest
	case errors.Is(err, ecds.ErrReplaced):
		status = http.StatusConflict
	}
	http.Error(w, err.Error(), status)
}
