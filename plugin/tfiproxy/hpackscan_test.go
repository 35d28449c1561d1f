package tfiproxy

import (
	"testing"

	"golang.org/x/net/http2/hpack"
)

// literalField encodes a field each way in which it can stand in a block without a table.
func literalField(name, value string) map[string][]byte {
	text := func(b []byte, s string, huffman bool) []byte {
		if !huffman {
			return append(appendHpackInt(b, 0, 7, len(s)), s...)
		}
		code := hpack.AppendHuffmanString(nil, s)
		return append(appendHpackInt(b, 0x80, 7, len(code)), code...)
	}
	all := map[string][]byte{
		"plain":         appendLiteral(nil, name, value),
		"huffman":       text(text([]byte{0}, name, true), value, true),
		"huffman name":  text(text([]byte{0}, name, true), value, false),
		"huffman value": text(text([]byte{0}, name, false), value, true),
	}
	for i := range staticTable {
		if staticTable[i].name == name {
			all["static name"] = text(appendHpackInt(nil, 0, 4, i+1), value, false)
			all["static name, huffman value"] = text(appendHpackInt(nil, 0, 4, i+1), value, true)
		}
	}
	return all
}

// TestGateHTTP2 says that the gate sees what the engine does, however it is encoded,
// and what HTTP/1's gate does.
func TestGateHTTP2(t *testing.T) {
	const (
		low  = "00112233445566778899aabbccdd"
		tail = "-00f067aa0ba902b7-01"
	)
	header := newHpackName("from") // it is in the static table
	for _, c := range []struct {
		name, value string
		marked      bool
	}{
		{"traceparent", "00-5f1c" + low + tail, true},
		{"traceparent", "00-5F1C" + low + tail, true},
		{"traceparent", "00-5f1C" + low + tail, true},
		{"traceparent", "01-5f1c" + low + tail, true},
		{"traceparent", "00-00000000000000005f1c001122334455" + tail, true},
		{"traceparent", "00-66aabbcc000000005f1c001122334455" + tail, false},
		{"traceparent", "00-06aabbcc000000005f1c001122334455" + tail, false},
		{"traceparent", "00-4bf9" + low + tail, false},
		{"traceparent", "00-5e1c" + low + tail, false},
		{"x-b3-traceid", "5f1c001122334455", true},
		{"x-b3-traceid", "00000000000000005f1c001122334455", true},
		{"x-b3-traceid", "66aabbcc000000005f1c001122334455", false},
		{"from", "5f1c" + low, true},
		{"from", "4bf9" + low, false},
	} {
		for how, block := range literalField(c.name, c.value) {
			var g hpackGate
			if err := g.scan(block, &header); err != nil {
				t.Fatal(err)
			}
			if !g.traced || g.marked != c.marked {
				t.Errorf("%s: %s, %s: traced %v, marked %v", c.name, c.value, how, g.traced, g.marked)
			}
		}
		var h requestHead
		if err := h.scan([]byte("GET / HTTP/1.1\r\nHost: a\r\n"+c.name+": "+c.value+"\r\n\r\n"), header.plain); err != nil {
			t.Fatal(err)
		}
		if !h.traced || h.marked != c.marked {
			t.Errorf("%s: %s over HTTP/1: traced %v, marked %v", c.name, c.value, h.traced, h.marked)
		}
	}
	var g hpackGate
	if err := g.scan([]byte{0x80 | 37}, &header); err != nil || !g.traced || g.marked {
		t.Errorf("an empty field of the table: traced %v, marked %v, %v", g.traced, g.marked, err)
	}
}

// TestHuffmanMarkUndecoded says that a trial's traceparent is known by its first bits: it
// is decoded once, by the engine.
func TestHuffmanMarkUndecoded(t *testing.T) {
	block := literalField("traceparent", "00-5f1c00112233445566778899aabbccdd-00f067aa0ba902b7-01")["huffman"]
	var g hpackGate
	if err := g.scan(block, nil); err != nil || !g.marked || !g.traced || g.scratch != nil {
		t.Errorf("marked %v, traced %v, %d bytes decoded, %v", g.marked, g.traced, len(g.scratch), err)
	}
}
