package tfiproxy

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// TestAppendWithStatus: what a block begins with stays there, and pseudo-fields stay first.
func TestAppendWithStatus(t *testing.T) {
	for _, status := range []string{"503", "418"} { // one of the static table, and one that is not
		for _, update := range []bool{false, true} {
			var block bytes.Buffer
			e := hpack.NewEncoder(&block)
			if update {
				e.SetMaxDynamicTableSize(0) // it says so at its first field
			}
			for _, f := range []hpack.HeaderField{
				{Name: ":status", Value: status, Sensitive: !update},
				{Name: "content-type", Value: "text/html", Sensitive: true},
				{Name: "server", Value: "proxy", Sensitive: true}, // not to be put into a table
			} {
				if err := e.WriteField(f); err != nil {
					t.Fatal(err)
				}
			}
			if isUpdate(block.Bytes()) != update {
				t.Fatalf("the block begins with %x", block.Bytes()[0])
			}
			var x h2fields
			if err := x.index(block.Bytes()); err != nil {
				t.Fatal(err)
			}
			b := x.appendWithStatus(nil, "200", &nameContentType)
			if isUpdate(b) != isUpdate(block.Bytes()) {
				t.Errorf("status %s: the block begins with %x, now with %x", status, block.Bytes()[0], b[0])
			}
			got, err := hpack.NewDecoder(4096, nil).DecodeFull(b)
			if want := []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "server", Value: "proxy", Sensitive: true}}; err != nil || !slices.Equal(got, want) {
				t.Errorf("status %s, update %v: %v, %v", status, update, got, err)
			}
		}
	}
}

// TestKnownNames says that the names that are at hand are encoded as others are.
func TestKnownNames(t *testing.T) {
	for _, name := range []string{
		"traceparent", "grpc-status", "content-type", "content-length", tfi.EvidenceHeader, "tracestate",
	} {
		if got, want := appendName(nil, name), hpack.AppendHuffmanString(nil, name); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
		var f h2fields
		for _, value := range []string{"0", "application/grpc", "application/grpc+proto"} {
			for how, block := range literalField(name, value) {
				if err := f.index(block); err != nil {
					t.Fatal(err)
				}
				if v, ok := f.Header(name); !ok || v != value {
					t.Errorf("%s, %s: %q, %v", name, how, v, ok)
				}
			}
		}
	}
}

// TestFieldsForget says that a connection keeps nothing of a block, and little room.
func TestFieldsForget(t *testing.T) {
	var f h2fields
	for _, c := range []struct{ fields, text, kept int }{{maxFields / 2, 10, 1}, {4 * maxFields, 1, 0}, {1, maxArena, 0}} {
		var block []byte
		for range c.fields {
			block = append(block, literalField("a", strings.Repeat("b", c.text))["huffman"]...)
		}
		if err := f.index(block); err != nil {
			t.Fatal(err)
		}
		for i := range f.list {
			f.value(&f.list[i])
		}
		f.forget()
		if f.block != nil || cap(f.list) > maxFields || cap(f.arena) > maxArena || min(cap(f.list), cap(f.arena), 1) != c.kept {
			t.Errorf("%d fields: room for %d, and %d bytes", c.fields, cap(f.list), cap(f.arena))
		}
	}
}
