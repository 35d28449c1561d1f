package tfiproxy

import (
	"errors"
	"testing"
)

func TestRequestHead(t *testing.T) {
	const host = "Host: a\r\n"
	for _, c := range []struct {
		name, head string
		err        error
		length     int64
	}{
		{"plain", "GET / HTTP/1.1\r\n" + host + "\r\n", nil, lengthNone},
		{"old", "GET / HTTP/1.0\r\n\r\n", nil, lengthNone},
		{"length", "POST / HTTP/1.1\r\n" + host + "Content-Length: 12\r\n\r\n", nil, 12},
		{"chunked", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: Chunked\r\n\r\n", nil, lengthChunked},
		{"largest length", "POST / HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775807\r\n\r\n", nil, 1<<63 - 1},
		{"blanks and tabs in values", "GET / HTTP/1.1\r\n" + host + "X:\t a\tb \r\n\r\n", nil, lengthNone},
		{"empty value", "GET / HTTP/1.1\r\n" + host + "X:\r\n\r\n", nil, lengthNone},
		{"bytes above ASCII", "GET / HTTP/1.1\r\n" + host + "X: \xc3\xa9\xff\r\n\r\n", nil, lengthNone},

		{"length and chunked", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", errFraming, 0},
		{"chunked and length", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", errFraming, 0},
		{"two lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", errFraming, 0},
		{"list of lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1, 1\r\n\r\n", errFraming, 0},
		{"signed length", "POST / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n", errFraming, 0},
		{"no length", "POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n", errFraming, 0},
		{"length that overflows", "POST / HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775808\r\n\r\n", errFraming, 0},
		{"two codings", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", errFraming, 0},
		{"other coding", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", errEncoding, 0},
		{"hidden coding", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: \x0bchunked\r\n\r\n", errHeadForm, 0},
		{"chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", errFraming, 0},
		{"folded", "GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", errHeadForm, 0},
		{"blank before colon", "POST / HTTP/1.1\r\n" + host + "Content-Length : 1\r\n\r\n", errHeadForm, 0},
		{"no colon", "GET / HTTP/1.1\r\n" + host + "X\r\n\r\n", errHeadForm, 0},
		{"no name", "GET / HTTP/1.1\r\n" + host + ": a\r\n\r\n", errHeadForm, 0},
		{"bare LF", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", errHeadForm, 0},
		{"bare CR", "GET / HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n", errHeadForm, 0},
		{"NUL", "GET / HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n", errHeadForm, 0},
		{"NUL after eight bytes", "GET / HTTP/1.1\r\n" + host + "X: 0123456789abcdef\x00\r\n\r\n", errHeadForm, 0},
		{"DEL", "GET / HTTP/1.1\r\n" + host + "X: 01234567\x7f\r\n\r\n", errHeadForm, 0},
		{"no host", "GET / HTTP/1.1\r\n\r\n", errHeadForm, 0},
		{"two hosts", "GET / HTTP/1.1\r\n" + host + host + "\r\n", errHeadForm, 0},
		{"HTTP/2", "GET / HTTP/2.0\r\n" + host + "\r\n", errHeadVersion, 0},
		{"HTTP/1.2", "GET / HTTP/1.2\r\n" + host + "\r\n", errHeadVersion, 0},
		{"HTTP/0.9", "GET /\r\n\r\n", errHeadForm, 0},
		{"blank in target", "GET /a b HTTP/1.1\r\n" + host + "\r\n", errHeadVersion, 0},
		{"method is no token", "G(T / HTTP/1.1\r\n" + host + "\r\n", errHeadForm, 0},
		{"control in target", "GET /\x01 HTTP/1.1\r\n" + host + "\r\n", errHeadForm, 0},
		{"line before", "\r\nGET / HTTP/1.1\r\n" + host + "\r\n", errHeadForm, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h requestHead
			err := h.scan([]byte(c.head), "")
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err == nil && h.length != c.length {
				t.Errorf("length %d, want %d", h.length, c.length)
			}
		})
	}
}

func TestResponseHead(t *testing.T) {
	for _, c := range []struct {
		head   string
		method string
		err    error
		status int
		length int64
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET", nil, 200, 3},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD", nil, 200, 0},
		{"HTTP/1.1 200\r\n\r\n", "GET", nil, 200, lengthEOF},
		{"HTTP/1.0 200 OK\r\n\r\n", "GET", nil, 200, lengthEOF},
		{"HTTP/1.1 204 No\r\n\r\n", "GET", nil, 204, 0},
		{"HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\n", "GET", nil, 304, 0},
		{"HTTP/1.1 100 Continue\r\n\r\n", "GET", nil, 100, 0},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", nil, 200, lengthChunked},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "GET", errFraming, 0, 0},
		{"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", errFraming, 0, 0},
		{"HTTP/1.1 2x0 OK\r\n\r\n", "GET", errHeadForm, 0, 0},
		{"HTTP/1.1 020 OK\r\n\r\n", "GET", errHeadForm, 0, 0},
		{"HTTP/1.1 2000 OK\r\n\r\n", "GET", errHeadForm, 0, 0},
		{"HTTP/1.1  200 OK\r\n\r\n", "GET", errHeadForm, 0, 0},
		{"HTTP/3.0 200 OK\r\n\r\n", "GET", errHeadVersion, 0, 0},
	} {
		var h responseHead
		err := h.scan([]byte(c.head))
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%q: error %v, want %v", c.head, err, c.err)
			continue
		}
		if err == nil && (h.status != c.status || h.bodyLength([]byte(c.method)) != c.length) {
			t.Errorf("%q: status %d, length %d", c.head, h.status, h.bodyLength([]byte(c.method)))
		}
	}
}

// TestGate says which requests are looked at more closely.
func TestGate(t *testing.T) {
	const rest = "00112233445566778899aabbccdd"
	for _, c := range []struct {
		header         string
		traced, marked bool
	}{
		{"traceparent: 00-5f1c" + rest + "-00f067aa0ba902b7-01", true, true},
		{"Traceparent: 00-5F1C" + rest + "-00f067aa0ba902b7-01", true, true},
		{"traceparent: 00-00000000000000005f1c001122334455-00f067aa0ba902b7-01", true, true},
		{"traceparent: 00-4bf9" + rest + "-00f067aa0ba902b7-01", true, false},
		{"traceparent: 5f1", true, false},
		{"b3: 5f1c001122334455-00f067aa0ba902b7-1", true, true},
		{"b3: 0", true, false},
		{"x-b3-traceid: 5f1c001122334455", true, true},
		{"x-b3-spanid: 5f1c001122334455", false, false},
		{"uber-trace-id: 5f1c" + rest + ":1:0:1", true, true},
		{"tracestate: a=b, sfi=00112233445566", false, true},
		{"tracestate: a=b", false, false},
		{"x-request-id: 5f1c001122334455", true, true},
		{"x-other: 5f1c001122334455", false, false},
	} {
		var h requestHead
		if err := h.scan([]byte("GET / HTTP/1.1\r\nHost: a\r\n"+c.header+"\r\n\r\n"), "x-request-id"); err != nil {
			t.Fatal(err)
		}
		if h.traced != c.traced || h.marked != c.marked {
			t.Errorf("%s: traced %v, marked %v", c.header, h.traced, h.marked)
		}
	}
}

// TestBody feeds bodies whole and byte by byte: the end must be found alike.
func TestBody(t *testing.T) {
	for _, c := range []struct {
		name   string
		length int64
		bytes  string
		ends   int // where the body ends; -1: malformed
	}{
		{"length", 3, "abcdef", 3},
		{"empty", 0, "abc", 0},
		{"chunks", lengthChunked, "3\r\nabc\r\n0\r\n\r\nGET", 13},
		{"chunk extension", lengthChunked, "3;a=\"b\"\r\nabc\r\n0;x\r\n\r\nGET", 21},
		{"upper case and zeros", lengthChunked, "00A\r\n0123456789\r\n000\r\n\r\nX", 24},
		{"trailers", lengthChunked, "1\r\na\r\n0\r\nx-sum: 1\r\ny: 2\r\n\r\nGET", 27},
		{"no size", lengthChunked, "\r\nabc", -1},
		{"size too large", lengthChunked, "1000000000000000\r\n", -1},
		{"blank before size", lengthChunked, " 3\r\nabc\r\n", -1},
		{"blank after size", lengthChunked, "3 \r\nabc\r\n", -1},
		{"hex prefix", lengthChunked, "0x3\r\nabc\r\n", -1},
		{"signed", lengthChunked, "-1\r\n", -1},
		{"bare LF after size", lengthChunked, "3\nabc\r\n0\r\n\r\n", -1},
		{"bare LF after data", lengthChunked, "3\r\nabc\n0\r\n\r\n", -1},
		{"bare LF in extension", lengthChunked, "3;a\nb\r\nabc\r\n0\r\n\r\n", -1},
		{"data longer than size", lengthChunked, "3\r\nabcd\r\n0\r\n\r\n", -1},
		{"folded trailer", lengthChunked, "0\r\na: b\r\n c\r\n\r\n", -1},
		{"trailer without colon", lengthChunked, "0\r\nabc\r\n\r\n", -1},
		{"trailer with blank before colon", lengthChunked, "0\r\na : b\r\n\r\n", -1},
		{"control byte in trailer", lengthChunked, "0\r\na: b\x00\r\n\r\n", -1},
		{"bare CR in trailer", lengthChunked, "0\r\na: b\rc\r\n\r\n", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, step := range []int{1, 2, 5, 1000} {
				var s body
				s.begin(c.length)
				rest, total := []byte(c.bytes), 0
				var err error
				for len(rest) > 0 && !s.done && err == nil {
					var n int
					piece := rest[:min(step, len(rest))]
					n, err = s.consume(piece)
					total += n
					rest = rest[n:]
					if err == nil && n < len(piece) && !s.done {
						t.Fatalf("step %d: stopped after %d bytes", step, total)
					}
				}
				switch {
				case c.ends < 0 && err == nil:
					t.Errorf("step %d: accepted", step)
				case c.ends >= 0 && (err != nil || !s.done || total != c.ends):
					t.Errorf("step %d: ended after %d bytes (done %v, error %v), want %d", step, total, s.done, err, c.ends)
				}
			}
		})
	}
}
