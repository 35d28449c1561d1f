package tfiproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The parsers are fuzzed against those of Go's own HTTP. They need not accept the
// same messages: the sidecar is stricter. But where it accepts one, both must agree on
// where it ends, or one message could hide in another.

// requestEnd finds the end of a request as the sidecar does; ok is false if it
// refuses the request or has not all of it.
func requestEnd(b []byte) (h requestHead, data, end int, ok bool) {
	size := headEnd(b, 0)
	if size == 0 || h.scan(b[:size], "x-trace") != nil {
		return h, 0, 0, false
	}
	var s body
	s.begin(h.bodyLength())
	n, err := s.consume(b[size:])
	if err != nil || !s.done {
		return h, 0, 0, false
	}
	return h, int(s.bytes), size + n, true
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://a/b?c HTTP/1.1\r\nHost: a\r\ntraceparent: 00-5f1c112233445566778899aabbccddee-0102030405060708-01\r\n\r\nGET /",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcdef",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nx: y\r\n\r\nrest",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n00\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nUpgrade: websocket\r\nConnection: upgrade, close\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, data, end, ok := requestEnd(b)
		if !ok {
			return
		}
		var v headView
		v.index(b[:h.size])
		if got := v.appendWithout(nil, "x-no-such-field"); !bytes.Equal(append(got, "\r\n"...), b[:h.size]) {
			t.Fatalf("head %q copied as %q", b[:h.size], got)
		}
		src := bytes.NewReader(b)
		r := bufio.NewReaderSize(src, 16)
		req, err := http.ReadRequest(r)
		if err != nil {
			return // refused there
		}
		read, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		if len(read) != data {
			t.Fatalf("body of %d bytes, net/http says %d: %q", data, len(read), b)
		}
		if left := src.Len() + r.Buffered(); len(b)-left != end {
			t.Fatalf("ends at %d, net/http says %d: %q", end, len(b)-left, b)
		}
		if req.Method != string(h.method) {
			t.Fatalf("method %q, net/http says %q", h.method, req.Method)
		}
		if got, _ := v.Header("traceparent"); got != req.Header.Get("Traceparent") {
			t.Fatalf("traceparent %q, net/http says %q", got, req.Header.Get("Traceparent"))
		}
	})
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
		"HTTP/1.1 204\r\n\r\n",
		"HTTP/1.1 304 Not\r\nContent-Length: 7\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, isHead bool) {
		method := "GET"
		if isHead {
			method = "HEAD"
		}
		size := headEnd(b, 0)
		var h responseHead
		if size == 0 || h.scan(b[:size]) != nil || h.status < 200 {
			return
		}
		var s body
		length := h.bodyLength([]byte(method))
		s.begin(length)
		n, err := s.consume(b[size:])
		if err != nil || !s.done && length != lengthEOF {
			return
		}
		r := bufio.NewReader(bytes.NewReader(b))
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return
		}
		read, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		if err != nil {
			return
		}
		if int64(len(read)) != s.bytes || resp.StatusCode != h.status {
			t.Fatalf("status %d with %d bytes, net/http says %d with %d: %q", h.status, s.bytes, resp.StatusCode, len(read), b)
		}
		if left := r.Buffered(); len(b)-left != size+n {
			t.Fatalf("ends at %d, net/http says %d: %q", size+n, len(b)-left, b)
		}
	})
}

// FuzzBody says that a body's end does not depend on how it is cut into reads.
func FuzzBody(f *testing.F) {
	f.Add([]byte("3;x\r\nabc\r\n0\r\nx: y\r\n\r\nrest"), uint8(1))
	f.Add([]byte("A\r\n0123456789\r\n0\r\n\r\n"), uint8(4))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		follow := func(step int) (ends int, s body, err error) {
			s.begin(lengthChunked)
			for ends < len(b) && !s.done && err == nil {
				var n int
				n, err = s.consume(b[ends:min(ends+step, len(b))])
				ends += n
			}
			return ends, s, err
		}
		end1, s1, err1 := follow(len(b) + 1)
		end2, s2, err2 := follow(int(step) + 1)
		if (err1 == nil) != (err2 == nil) || err1 == nil && (end1 != end2 || s1.done != s2.done || s1.bytes != s2.bytes) {
			t.Fatalf("whole: %d %v %v; by %d: %d %v %v", end1, s1.done, err1, step, end2, s2.done, err2)
		}
	})
}

func FuzzHPACK(f *testing.F) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for _, h := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":path", Value: "/cart.Cart/Add"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "traceparent", Value: "00-5f1c112233445566778899aabbccddee-0102030405060708-01"},
		{Name: "authorization", Value: "secret", Sensitive: true},
	} {
		if err := e.WriteField(h); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b.Bytes())
	f.Add([]byte{0x20, 0x82, 0x84})
	f.Add(appendLiteral(nil, "a", "b"))
	f.Fuzz(func(t *testing.T, block []byte) {
		var x h2fields
		err := x.index(block)
		var g hpackGate
		scanned := g.scan(block, nil)
		if scanned != nil {
			if err == nil {
				t.Fatal("decoded what the walk refuses")
			}
			return
		}
		var want []hpack.HeaderField
		d := hpack.NewDecoder(0, func(f hpack.HeaderField) { want = append(want, f) })
		_, theirs := d.Write(block)
		if theirs == nil {
			theirs = d.Close()
		}
		if theirs != nil {
			return // x/net refuses size updates that are late or too large, and more
		}
		if err != nil {
			t.Fatalf("refused: %v, x/net reads %v", err, want)
		}
		if len(want) != len(x.list) {
			t.Fatalf("%d fields, x/net says %d", len(x.list), len(want))
		}
		marked := false
		for i, f := range want {
			name := newHpackName(f.Name)
			if !x.list[i].is(block, &name) || x.value(&x.list[i]) != f.Value {
				t.Fatalf("field %d is %+v, x/net says %v", i, x.list[i], f)
			}
			first := slices.IndexFunc(want, func(o hpack.HeaderField) bool { return o.Name == f.Name })
			if v, ok := x.Header(f.Name); !ok || v != want[first].Value {
				t.Fatalf("%s is %q (%v), x/net says %q", f.Name, v, ok, want[first].Value)
			}
			marked = marked || f.Name == "traceparent" && len(f.Value) > 7 && f.Value[:7] == "00-5f1c"
		}
		if marked && !g.marked {
			t.Fatal("the gate misses a trial")
		}
		if got := x.appendWithout(nil); !bytes.Equal(got, block) {
			t.Fatal("copied differently")
		}
	})
}

// FuzzHuffman decodes as x/net does.
func FuzzHuffman(f *testing.F) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, s := range []string{"", "a", "/cart?id=7", "00-5f1c112233445566778899aabbccddee-0102030405060708-01", "~|", string(all)} {
		f.Add(hpack.AppendHuffmanString(nil, s))
	}
	f.Add([]byte{0xff})             // padding only
	f.Add([]byte{0x1f, 0xff})       // too much of it
	f.Add([]byte{0x18})             // of zeros
	f.Add([]byte{0xff, 0xff, 0xff}) // end of string
	f.Fuzz(func(t *testing.T, b []byte) {
		want, theirs := hpack.HuffmanDecodeToString(b)
		got, err := appendHuffman([]byte("x"), b)
		if (err == nil) != (theirs == nil) || err == nil && string(got) != "x"+want {
			t.Fatalf("%q (%v), x/net says %q (%v)", got, err, want, theirs)
		}
	})
}

// FuzzFrames reads frames as x/net does.
func FuzzFrames(f *testing.F) {
	b := appendHeaders(nil, 1, []byte{0x82, 0x84}, false)
	b = appendData(b, 1, []byte("hello"))
	b = appendReset(b, 1, codeCancel)
	b = appendWindowUpdate(b, 0, 5)
	b = appendGoAway(b, 1, codeNone)
	f.Add(b)
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0, 0, 3, 1, 0x2c, 0, 0, 0, 1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		theirs := http2.NewFramer(io.Discard, bytes.NewReader(b))
		theirs.AllowIllegalReads = true
		theirs.SetMaxReadFrameSize(maxFrameSize)
		for len(b) >= frameHeaderSize {
			h := parseFrameHeader(b)
			err := h.check(maxFrameSize)
			if err == nil && len(b) < frameHeaderSize+h.length {
				return
			}
			frame, theirErr := theirs.ReadFrame()
			if theirErr != nil {
				return
			}
			if err != nil {
				return // stricter
			}
			w := frame.Header()
			if int(w.Length) != h.length || uint8(w.Type) != uint8(h.kind) || w.StreamID != h.stream {
				t.Fatalf("frame %+v, x/net says %v", h, w)
			}
			if x, ok := frame.(*http2.HeadersFrame); ok {
				got, err := headerFragment(h, b[frameHeaderSize:frameHeaderSize+h.length])
				if err != nil || !bytes.Equal(got, x.HeaderBlockFragment()) {
					t.Fatalf("fragment %x (%v), x/net says %x", got, err, x.HeaderBlockFragment())
				}
			}
			if x, ok := frame.(*http2.DataFrame); ok {
				if n := dataLength(h, b); n != len(x.Data()) {
					t.Fatalf("%d bytes of data, x/net says %d", n, len(x.Data()))
				}
			}
			b = b[frameHeaderSize+h.length:]
		}
	})
}

// FuzzSettings says that whatever SETTINGS say, the other end is told to keep no
// table and to push nothing, and other values keep their meaning.
func FuzzSettings(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0x10, 0, 0, 4, 0, 0, 0xff, 0xff})
	f.Add([]byte{0, 2, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, payload []byte) {
		payload = payload[:len(payload)/settingSize*settingSize]
		c := &Config{Service: "a"}
		c.WithDefaults()
		p := &Proxy{cfg: c}
		h := &h2conn{proxy: p}
		r := &h2half{h: h, fromClient: true}
		head := frameHeader{kind: frameSettings, length: len(payload)}
		raw := append(appendFrameHeader(nil, head), payload...)
		v, err := r.settings(head, raw)
		if err != nil {
			var violation *protocolError
			if !errors.As(err, &violation) {
				t.Fatal(err)
			}
			return
		}
		if (v == verdictTake) != (len(r.unsaid) > 0) {
			t.Fatalf("verdict %d with %x to be added", v, r.unsaid)
		}
		told, push := false, false
		for b := slices.Concat(raw[frameHeaderSize:], r.unsaid); len(b) > 0; b = b[settingSize:] {
			switch n := binary.BigEndian.Uint32(b[2:]); binary.BigEndian.Uint16(b) {
			case settingTableSize:
				told = true
				if n != 0 {
					t.Fatalf("table of %d", n)
				}
			case settingEnablePush:
				push = true
				if n != 0 {
					t.Fatal("push allowed")
				}
			case settingFrameSize:
				if n < ownFrameSize || n > maxFrameSize {
					t.Fatalf("frames of %d", n)
				}
			}
		}
		if !told || !push {
			t.Fatal("nothing said of the table, or of pushes")
		}
	})
}

// TestHuffmanMark checks the gate's shortcut against decoding.
func TestHuffmanMark(t *testing.T) {
	for _, v := range []string{
		"00-5f1c" + "112233445566778899aabbccddee-0102030405060708-01",
		"00-5f1d112233445566778899aabbccddee-0102030405060708-01",
		"00-00000000000000005f1c001122334455-0102030405060708-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0102030405060708-01",
		"00-5F1C112233445566778899aabbccddee-0102030405060708-01",
		"00-5e1c112233445566778899aabbccddee-0102030405060708-01",
	} {
		var h requestHead
		if err := h.scan([]byte("GET / HTTP/1.1\r\nHost: a\r\ntraceparent: "+v+"\r\n\r\n"), ""); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		e.SetMaxDynamicTableSize(0)
		if err := e.WriteField(hpack.HeaderField{Name: "traceparent", Value: v}); err != nil {
			t.Fatal(err)
		}
		var g hpackGate
		if err := g.scan(b.Bytes(), nil); err != nil {
			t.Fatal(err)
		}
		if g.marked != h.marked || !g.traced {
			t.Errorf("%s: marked %v over HTTP/2, %v over HTTP/1", v, g.marked, h.marked)
		}
	}
}

// TestStaticTable compares the table with what x/net decodes.
func TestStaticTable(t *testing.T) {
	for i := 1; i <= staticLength; i++ {
		d := hpack.NewDecoder(0, nil)
		fields, err := d.DecodeFull([]byte{0x80 | byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		if got := staticTable[i-1]; got.name != fields[0].Name || got.value != fields[0].Value {
			t.Errorf("entry %d is %v, want %v", i, got, fields[0])
		}
	}
}
