package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
)

// TestCalleeUploads sends bodies in one piece with their head, after it, and two
// requests at once: each gets one answer, and none of a body is taken for a request.
func TestCalleeUploads(t *testing.T) {
	head, large := "POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: ", strings.Repeat("GET /1 HTTP/1.1\r\n\r\n", 5000)
	for name, pieces := range map[string][]string{
		"with its head": {head + "4\r\n\r\nbody"},
		"none":          {head + "0\r\n\r\n"},
		"after it":      {head + "95000\r\n\r\n", large},
		"in part":       {head + "95000\r\n\r\n" + large[:100], large[100:]},
		"two":           {head + "4\r\n\r\nbodyGET /3 HTTP/1.1\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", listenFor(t, calleeHTTP1))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, p := range pieces {
				if _, err := io.WriteString(c, p); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			want := 1
			if name == "two" {
				want = 2
			}
			if n := strings.Count(string(got), "HTTP/1.1 200"); n != want || strings.Count(string(got), "\r\n\r\nxxx") != want {
				t.Errorf("%d answers, want %d: %q", n, want, got)
			}
		})
	}
}

// TestCalleeReadsFragments: where windows are small, the first frames of a message
// may have too little of it to tell what it asks for.
func TestCalleeReadsFragments(t *testing.T) {
	for _, sh := range []shape{shapeSend, shapeBidi} {
		for first := 1; first < 20; first++ {
			message := sh.message(100)
			x := &callee{window: defaultWindow, initial: defaultWindow, calls: map[uint32]*call{}, answers: map[string][]byte{}}
			x.take(frame{kind: frameHeaders, stream: 1})
			x.take(frame{kind: frameData, stream: 1, payload: message[:first]})
			x.take(frame{kind: frameData, stream: 1, payload: message[first:]})
			x.take(frame{kind: frameData, flags: flagEnd, stream: 1})
			want := frameMessage(nil, nil)
			if sh == shapeBidi {
				want = message
			}
			var got []byte
			for f, rest, ok := nextFrame(x.out); ok; f, rest, ok = nextFrame(rest) {
				if f.kind == frameData {
					got = append(got, f.payload...)
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, %d bytes first: %q", sh, first, got)
			}
		}
	}
}
