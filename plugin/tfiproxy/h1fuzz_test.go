package tfiproxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// message is what net/http makes of a request or an answer.
type message struct{ line, body string }

// requests reads requests as net/http does, until it cannot. whole: it read
// everything.
func requests(b []byte) (list []message, whole bool) {
	r := bufio.NewReader(bytes.NewReader(b))
	for {
		if _, err := r.Peek(1); err == io.EOF {
			return list, true
		}
		req, err := http.ReadRequest(r)
		if err != nil {
			return list, false
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return list, false
		}
		list = append(list, message{req.Method + " " + req.RequestURI, string(body)})
	}
}

// answers reads the final answers to requests as net/http does, until it cannot.
func answers(b []byte, to []message) (list []message, err error) {
	r := bufio.NewReader(bytes.NewReader(b))
	for _, m := range to {
		method, _, _ := strings.Cut(m.line, " ")
		status := 0
		for status < 200 && status != http.StatusSwitchingProtocols {
			if _, err := r.Peek(1); err == io.EOF {
				return list, nil
			}
			resp, err := http.ReadResponse(r, &http.Request{Method: method})
			if err != nil {
				return list, err
			}
			status = resp.StatusCode
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // it has been read
			if err != nil {
				return list, err
			}
			if status >= 200 {
				list = append(list, message{strconv.Itoa(status), string(body)})
			}
		}
	}
	return list, nil
}

// made are the statuses with which the sidecar answers by itself.
var made = []string{"400", "431", "501", "502", "503", "505"}

// FuzzHTTP1 plays both ends of a connection through the sidecar. Of what the client
// says the callee hears the same requests, in the same order and each with its own
// body, or fewer: nothing that net/http would not have found in the client's bytes. And of
// what the callee answers the client hears the same, in the same order, or answers of
// the sidecar's own.
func FuzzHTTP1(f *testing.F) {
	policy := fuzzPolicy(f, 0) // a pause waits on a socket
	trace := "traceparent: 00-" + tfi.NewTraceID(fuzzKey, 1).String() + "-00f067aa0ba902b7-01\r\n"
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer"
	for _, path := range []string{"/", "/req/error", "/req/abort", "/resp/error", "/resp/abort"} {
		f.Add([]byte("POST "+path+" HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"+trace+"\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n"), []byte(answer+answer), uint8(255), uint8(255))
		f.Add([]byte("POST "+path+" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"+trace+"\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nGET / HTTP/1.0\r\n\r\n"),
			[]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.0 200 OK\r\n\r\nrest"), uint8(7), uint8(3))
	}
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"), []byte(answer), uint8(3), uint8(3))
	for _, stray := range []string{ // evidence of no live trial
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\ntraceparent: 00-5f1c000000000000000000000000000a-00f067aa0ba902b7-01\r\nx-fic-evidence: AQEBAQ\r\n\r\nabc",
		"GET /healthz HTTP/1.1\r\nHost: a\r\n" + trace + "x-fic-evidence: AQEBAQ\r\n\r\n",
	} {
		f.Add([]byte(stray+stray), []byte("HTTP/1.1 200 OK\r\nX-Fic-Evidence: AQEBAQ\r\nContent-Length: 6\r\n\r\nanswer"+answer), uint8(255), uint8(255))
	}
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nraw"), []byte("HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\nraw"), uint8(200), uint8(200))
	f.Add([]byte("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nPUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx"),
		[]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 No\r\n\r\n"), uint8(200), uint8(1))
	f.Fuzz(func(t *testing.T, client, callee []byte, step1, step2 uint8) {
		down, up := &script{say: client, piece: int(step1) + 1}, &script{say: callee, piece: int(step2) + 1, shy: true}
		c := fuzzConn(t, policy, down, up)
		c.serve()
		c.end()
		if c.proxy.metrics.get(metricInternal) != 0 {
			t.Fatal("internal error")
		}
		if c.proxy.metrics.get(metricUnseen) != 0 || c.h2.Load() != nil {
			return
		}
		said, all := requests(client)
		heard, whole := requests(up.heard)
		left := said
		for _, m := range heard {
			i := slices.Index(left, m)
			if i < 0 {
				if all {
					t.Fatalf("callee heard %q, client said %q", heard, said)
				}
				return // net/http stopped before it
			}
			left = left[i+1:] // those before it were answered by the sidecar
		}
		// A request that was cut off comes last, and is none.
		if !whole && all && len(heard) == len(said) {
			t.Fatalf("more than %d requests were passed on: %q", len(said), up.heard)
		}
		left, err := answers(callee, heard)
		if err != nil || !all || !whole {
			return // net/http takes one of them for something else
		}
		got, err := answers(down.heard, said)
		if err != nil && !strings.Contains(err.Error(), "EOF") { // else it was cut off
			t.Fatalf("client heard %q: %v; callee said %q", down.heard, err, callee)
		}
		for _, m := range got {
			if i := slices.Index(left, m); i >= 0 {
				left = left[i+1:]
			} else if !slices.Contains(made, m.line) {
				t.Fatalf("client heard %q of what the callee said: %q", got, callee)
			}
		}
	})
}

// FuzzFieldBytes compares what may stand in a header with net/http's rules.
func FuzzFieldBytes(f *testing.F) {
	for _, s := range []string{"", "host", "x y", "a: b", "tab\tand more than eight", "\x7f", "nul\x00", "caf\xc3\xa9 olé", "12345678\x1f"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := isToken(b), httpguts.ValidHeaderFieldName(string(b)); got != want {
			t.Errorf("name %q: %v, want %v", b, got, want)
		}
		if got, want := isFieldValue(b), httpguts.ValidHeaderFieldValue(string(b)); got != want {
			t.Errorf("value %q: %v, want %v", b, got, want)
		}
	})
}

// FuzzReply reads the answers of control plane and collector as net/http does.
func FuzzReply(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: a\r\n\r\nabc"), uint8(3))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA;x\r\n0123456789\r\n1\r\nx\r\n0\r\nT: 1\r\n\r\n"), uint8(1))
	f.Add([]byte("HTTP/1.0 404 No\r\n\r\nrest"), uint8(200))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		c := &client{}
		c.conn.over = &script{say: b, piece: int(step) + 1}
		defer c.close()
		r, err := c.readReply("GET")
		if err != nil || r.status < 200 {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), &http.Request{Method: http.MethodGet})
		if err != nil {
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		if err != nil {
			return
		}
		if resp.StatusCode != r.status || !bytes.Equal(body, r.body) {
			t.Fatalf("%d %q, net/http says %d %q", r.status, r.body, resp.StatusCode, body)
		}
		if got, _ := r.head.Header("etag"); got != resp.Header.Get("ETag") {
			t.Fatalf("etag %q, net/http says %q", got, resp.Header.Get("ETag"))
		}
	})
}
