package tfiproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// TestPoll gives a sidecar one answer after another, and looks at what it asks then.
func TestPoll(t *testing.T) {
	policy := func(version string) string {
		b, err := proto.Marshal(behaviour.Policy(version, behaviour.Activation(behaviour.NewKey(), 0)))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	ttl := func(seconds string) http.Header { return http.Header{ttlHeader: {seconds}} }
	tagged := func(etag, seconds string) http.Header {
		return http.Header{"Etag": {etag}, ttlHeader: {seconds}}
	}
	cfg := outboundTo(echoHTTP1(t, plainAnswer))
	p := startProxy(t, cfg)
	p.cfg.Service, p.cfg.Version = "here/there", "1.2.3"
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(" secret \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		status int
		header http.Header
		body   string
	}
	answers := make(chan answer, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/policy/here%2Fthere" || r.Header.Get("Authorization") != "Bearer secret" || r.UserAgent() != "tfiproxy/1.2.3" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		a := <-answers
		for name, values := range a.header {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body) // it has gone
	}))
	t.Cleanup(server.Close)
	source := &PolicySource{Address: server.Listener.Addr().String(), TokenFile: token, TTL: time.Minute}
	f := &poller{proxy: p, source: source, client: client{address: source.Address, connect: time.Second}}
	t.Cleanup(f.client.close)
	lapsesIn := func() time.Duration {
		p.policies.mu.Lock()
		defer p.policies.mu.Unlock()
		return p.policies.lapses - p.now()
	}

	type state struct{ holds, refused string }
	for _, step := range []struct {
		what    string
		answer  answer
		err     string // words of the error; empty: none
		changed bool
		lapses  time.Duration // TTL that begins with it; 0: none
		then    state
	}{
		{what: "nothing yet", answer: answer{status: 204}},
		{what: "a policy", answer: answer{200, tagged("v1", "40"), policy("v1")}, changed: true, lapses: 40 * time.Second, then: state{"v1", ""}},
		{what: "a heartbeat", answer: answer{204, ttl("50.5"), ""}, lapses: 50500 * time.Millisecond, then: state{"v1", ""}},
		{what: "no heartbeat", answer: answer{status: 204}, then: state{"v1", ""}},
		{what: "one that cannot be read", answer: answer{200, tagged("v2", "90"), "nonsense"}, changed: true, then: state{"v1", "v2"}},
		{what: "still refused", answer: answer{204, ttl("60"), ""}, lapses: time.Minute, then: state{"v1", "v2"}},
		{what: "another server", answer: answer{status: 404}, err: "policy.address", then: state{"v1", "v2"}},
		{what: "a page", answer: answer{200, nil, "<html>"}, err: "status 200", then: state{"v1", "v2"}},
		{what: "no time", answer: answer{204, ttl("0"), ""}, err: ttlHeader, then: state{"v1", "v2"}},
		{what: "no number", answer: answer{204, ttl("NaN"), ""}, err: ttlHeader, then: state{"v1", "v2"}},
		{what: "too long", answer: answer{204, ttl("1e9"), ""}, err: ttlHeader, then: state{"v1", "v2"}},
		{what: "the wrong token", answer: answer{status: 401}, err: "policy.token_file", then: state{"v1", "v2"}},
		{what: "a namesake", answer: answer{status: 409}, err: "another sidecar", then: state{"v1", "v2"}},
		{what: "a good one", answer: answer{200, tagged("v3", "70"), policy("v3")}, changed: true, lapses: 70 * time.Second, then: state{"v3", ""}},
		{what: "one under another name", answer: answer{200, tagged("v5", "80"), policy("v4")}, changed: true, lapses: 80 * time.Second, then: state{"v4", "v5"}},
		{what: "none any more", answer: answer{status: 410}, changed: true},
	} {
		before := lapsesIn()
		answers <- step.answer
		changed, err := f.poll(t.Context())
		text := ""
		if err != nil {
			text = err.Error()
		}
		if (text == "") != (step.err == "") || !strings.Contains(text, step.err) || changed != step.changed {
			t.Errorf("%s: changed %v, error %q", step.what, changed, text)
		}
		asks, err := url.Parse(f.question())
		if err != nil {
			t.Fatal(err)
		}
		query := asks.Query()
		if now := (state{query.Get("version"), query.Get("refused")}); now != step.then || (now.refused == "") != (query.Get("reason") == "") {
			t.Errorf("%s: then it says %v, want %v", step.what, query, step.then)
		}
		after := lapsesIn()
		if step.lapses > 0 && (after > step.lapses || after < step.lapses-5*time.Second) || step.lapses == 0 && after > before {
			t.Errorf("%s: lapses in %v, before in %v", step.what, after, before)
		}
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	if _, err := f.poll(t.Context()); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("without a token: %v", err)
	}
}
