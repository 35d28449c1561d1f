package tfiproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
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
	f := &poller{proxy: p, source: source, timeout: time.Minute, client: client{address: source.Address, connect: time.Second}}
	t.Cleanup(f.client.close)
	lapsesIn := func() time.Duration {
		p.policies.mu.Lock()
		defer p.policies.mu.Unlock()
		return p.policies.lapses - p.now()
	}

	type state struct{ holds, refused string }
	for _, step := range []struct {
		what   string
		answer answer
		err    string // words of the error; empty: none
		news   bool
		lapses time.Duration // TTL that begins with it; 0: none
		then   state
	}{
		{what: "nothing yet", answer: answer{status: 204}},
		{what: "a policy", answer: answer{200, tagged("v1", "40"), policy("v1")}, news: true, lapses: 40 * time.Second, then: state{"v1", ""}},
		{what: "the same again", answer: answer{200, tagged("v1", "40"), policy("v1")}, lapses: 40 * time.Second, then: state{"v1", ""}},
		{what: "a heartbeat", answer: answer{204, ttl("50.5"), ""}, lapses: 50500 * time.Millisecond, then: state{"v1", ""}},
		{what: "no heartbeat", answer: answer{status: 204}, then: state{"v1", ""}},
		{what: "one that cannot be read", answer: answer{200, tagged("v2", "90"), "nonsense"}, news: true, then: state{"v1", "v2"}},
		{what: "that one again", answer: answer{200, tagged("v2", "90"), "nonsense"}, then: state{"v1", "v2"}},
		{what: "still refused", answer: answer{204, ttl("60"), ""}, lapses: time.Minute, then: state{"v1", "v2"}},
		{what: "another server", answer: answer{status: 404}, err: "policy.address", then: state{"v1", "v2"}},
		{what: "a page", answer: answer{200, nil, "<html>"}, err: "status 200", then: state{"v1", "v2"}},
		{what: "no time", answer: answer{204, ttl("0"), ""}, err: ttlHeader, then: state{"v1", "v2"}},
		{what: "no number", answer: answer{204, ttl("NaN"), ""}, err: ttlHeader, then: state{"v1", "v2"}},
		{what: "too long", answer: answer{204, ttl("1e9"), ""}, err: ttlHeader, then: state{"v1", "v2"}},
		{what: "the wrong token", answer: answer{status: 401}, err: "policy.token_file", then: state{"v1", "v2"}},
		{what: "a namesake", answer: answer{status: 409}, err: "another sidecar", then: state{"v1", "v2"}},
		{what: "a good one", answer: answer{200, tagged("v3", "70"), policy("v3")}, news: true, lapses: 70 * time.Second, then: state{"v3", ""}},
		{what: "one under another name", answer: answer{200, tagged("v5", "80"), policy("v4")}, news: true, then: state{"v3", "v5"}},
		{what: "one without a name", answer: answer{200, tagged("v6", "80"), policy("")}, news: true, then: state{"v3", "v6"}},
		{what: "none any more", answer: answer{status: 410}, news: true},
		{what: "none, still", answer: answer{status: 410}},
		{what: "a policy without its time", answer: answer{200, tagged("v7", "soon"), policy("v7")}, err: ttlHeader},
		{what: "another policy", answer: answer{200, tagged("v7", "40"), policy("v7")}, news: true, lapses: 40 * time.Second, then: state{"v7", ""}},
		{what: "none any more, with a broken time", answer: answer{410, ttl("soon"), ""}, news: true},
	} {
		before := lapsesIn()
		answers <- step.answer
		news, err := f.poll(t.Context())
		text := ""
		if err != nil {
			text = err.Error()
		}
		if (text == "") != (step.err == "") || !strings.Contains(text, step.err) || news != step.news {
			t.Errorf("%s: news %v, error %q", step.what, news, text)
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

// TestPollPace has planes that answer every poll at once: each is asked no more often than
// a plane has reason to.
func TestPollPace(t *testing.T) {
	policies := [2]string{"v0", "v1"}
	for i, version := range policies {
		b, err := proto.Marshal(behaviour.Policy(version, behaviour.Activation(behaviour.NewKey(), 0)))
		if err != nil {
			t.Fatal(err)
		}
		policies[i] = string(b)
	}
	for _, c := range []struct {
		what   string
		answer func(w http.ResponseWriter, poll int)
		period time.Duration // of polls, in the long run
	}{
		{"nothing new", func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusNoContent) }, minBackOff},
		{"no policy", func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusGone) }, minBackOff},
		{"one policy", func(w http.ResponseWriter, _ int) {
			w.Header().Set("Etag", "v0")
			_, _ = io.WriteString(w, policies[0]) // it has gone
		}, minBackOff},
		{"nonsense", func(w http.ResponseWriter, _ int) {
			w.Header().Set("Etag", "v0")
			_, _ = io.WriteString(w, "nonsense") // it has gone
		}, minBackOff},
		{"one policy after the other", func(w http.ResponseWriter, poll int) {
			w.Header().Set("Etag", "v"+strconv.Itoa(poll%2))
			_, _ = io.WriteString(w, policies[poll%2]) // it has gone
		}, minNews},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			var polls atomic.Int32
			asked := make(chan time.Time, 1000)
			plane := httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
				c.answer(w, int(polls.Add(1)))
				asked <- time.Now()
			})
			cfg := outboundTo("127.0.0.1:1")
			cfg.Service, cfg.Policy = behaviour.Service, PolicySource{Address: plane}
			startProxy(t, cfg)
			first := <-asked
			const more = 6
			for range more - 1 {
				<-asked
			}
			// The first answer may be news, which is acknowledged at once, and come late.
			if took, least := (<-asked).Sub(first), (more-2)*c.period; took < least {
				t.Errorf("%d more polls in %v, want %v at least", more, took, least)
			}
		})
	}
}

// TestPollHangs has a plane that promises a day and says nothing more: the poll ends all
// the same, and the plane is asked on a new connection.
func TestPollHangs(t *testing.T) {
	p := startProxy(t, outboundTo("127.0.0.1:1"))
	var polls atomic.Int32
	plane := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if polls.Add(1) == 2 {
			<-r.Context().Done() // the sidecar has given up
			return
		}
		w.Header().Set(ttlHeader, "86400")
		w.WriteHeader(http.StatusNoContent)
	})
	f := &poller{proxy: p, source: &PolicySource{Address: plane}, timeout: 10 * time.Second, client: client{address: plane, connect: time.Second}}
	t.Cleanup(f.client.close)
	if _, err := f.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.timeout = 50 * time.Millisecond
	begun := time.Now()
	if _, err := f.poll(t.Context()); err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("a plane that hangs: %v after %v", err, time.Since(begun))
	}
	f.timeout = 10 * time.Second
	if _, err := f.poll(t.Context()); err != nil {
		t.Error(err)
	}
}
