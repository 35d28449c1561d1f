package tfiproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// TestNoEvidenceInAnswers says that a trial's caller sees no evidence wherever it is in an
// answer, of a live trial or another, whatever pieces it comes in, and all else.
func TestNoEvidenceInAnswers(t *testing.T) {
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0)))
	if err != nil {
		t.Fatal(err)
	}
	const line = "X-Fic-Evidence: AQEBAQ\r\n"
	for name, answer := range map[string]string{
		"everywhere": "HTTP/1.1 103 Early Hints\r\n" + line + "Link: a\r\n\r\nHTTP/1.1 200 OK\r\n" + line + "Transfer-Encoding: chunked\r\n\r\n" +
			"2\r\nab\r\n00;x=y\r\nX-A: 1\r\n" + line + "X-B: 2\r\n" + line + "\r\n",
		"none": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
	} {
		for kind, trace := range map[string]tfi.TraceID{"live": tfi.NewTraceID(key, 1), "unknown": tfi.NewTraceID(behaviour.NewKey(), 1)} {
			for piece := 1; piece <= len(answer); piece++ {
				client := &script{say: []byte(tracedGet("/", trace, "")), piece: 1000}
				c := fuzzConn(t, policy, client, &script{say: []byte(answer), piece: piece, shy: true})
				c.serve()
				c.end()
				if want := strings.ReplaceAll(answer, line, ""); string(client.heard) != want {
					t.Fatalf("%s, %s trial, pieces of %d: client got %q, want %q", name, kind, piece, client.heard, want)
				}
			}
		}
	}
}

// TestNoEvidenceWithoutPolicy says that a callee's application sees no evidence, of
// whatever trace, when there is no policy, as after one that has lapsed.
func TestNoEvidenceWithoutPolicy(t *testing.T) {
	saw := make(chan http.Header, 1)
	cfg := outboundTo(httpServer(t, func(_ http.ResponseWriter, r *http.Request) { saw <- r.Header }))
	cfg.Listeners[0].Role = tfi.RoleServer
	p := startProxy(t, cfg)
	for i, trace := range []tfi.TraceID{behaviour.OrdinaryTrace, tfi.NewTraceID(behaviour.NewKey(), 1), behaviour.OrdinaryTrace} {
		if i == 2 {
			applyTrial(t, p, madeError("no"))
		}
		conn := dialProxy(t, p)
		say(t, conn, tracedGet("/", trace, "x-fic-evidence: AQEBAQ\r\nX-A: 1\r\nX-FIC-Evidence: AQEBAQ\r\nConnection: close\r\n"))
		h := <-saw
		if h.Get(tfi.EvidenceHeader) != "" || h.Get("X-A") != "1" {
			t.Errorf("%v: %v", trace, h)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Error(err)
		}
	}
}

// TestNoEvidenceInRequestTrailers says that no callee sees evidence in the trailers of a
// request, of a trial or not, at either kind of port, whatever pieces it comes in, and
// all else.
func TestNoEvidenceInRequestTrailers(t *testing.T) {
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0)))
	if err != nil {
		t.Fatal(err)
	}
	const line = "X-Fic-Evidence: AQEBAQ\r\n"
	for name, body := range map[string]string{
		"trailers": "2\r\nab\r\n00;x=y\r\nX-A: 1\r\n" + line + "X-B: 2\r\n" + line + "\r\n",
		"none":     "2\r\nab\r\n0\r\n\r\n",
	} {
		for kind, trace := range map[string]tfi.TraceID{
			"live": tfi.NewTraceID(key, 1), "unknown": tfi.NewTraceID(behaviour.NewKey(), 1), "no": behaviour.OrdinaryTrace,
		} {
			for _, role := range []tfi.Role{tfi.RoleClient, tfi.RoleServer} {
				request := strings.Replace(tracedGet("/", trace, "Transfer-Encoding: chunked\r\n"), "GET", "PUT", 1) + body
				for piece := 1; piece <= len(request); piece++ {
					// The next request shows that the end of this one was found.
					client := &script{say: []byte(request + "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"), piece: piece}
					callee := &script{say: []byte(plainAnswer + plainAnswer), piece: len(plainAnswer), shy: true}
					c := fuzzConn(t, policy, client, callee)
					c.listener.cfg.Role = role
					c.serve()
					c.end()
					_, got, found := strings.Cut(string(callee.heard), "\r\n\r\n")
					got, next, _ := strings.Cut(got, "GET /next ")
					if want := strings.ReplaceAll(body, line, ""); !found || got != want || next == "" {
						t.Fatalf("%s, %s trial, %v, pieces of %d: callee got %q, want %q", name, kind, role, piece, callee.heard, want)
					}
				}
			}
		}
	}
}
