package tfi

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	testServices = 3
	testLimit    = 1024
)

func drawSender(t *rapid.T) sender {
	return sender{
		tag:     Tag(rapid.Uint64Range(1, tagMask).Draw(t, "tag")),
		seq:     rapid.Uint32Min(1).Draw(t, "seq"),
		k:       rapid.Uint32().Draw(t, "k"),
		service: rapid.IntRange(0, testServices).Draw(t, "service"),
	}
}

func TestEvidenceRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, c := drawSender(t), drawCounter(t)
		raw, full := appendEvidence(nil, from, c, evidenceRoom(testLimit))
		if !full {
			t.Fatal("did not fit")
		}
		buf, e, err := decodeEvidence(nil, string(appendBase64(nil, raw)), testWidth, testServices, testLimit)
		if err != nil {
			t.Fatal(err)
		}
		if e.sender != from {
			t.Fatalf("sender %+v, want %+v", e.sender, from)
		}
		got := NewCounter(testWidth)
		if !e.mergeInto(got, 0, 64) {
			t.Fatal("no room")
		}
		same(t, "rows", c, got)
		if string(buf) != string(raw) {
			t.Fatal("not the same bytes")
		}
	})
}

func TestEvidenceIsCutToItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, c := drawSender(t), drawCounter(t)
		from.tag = Tag(rapid.IntRange(1, 4).Draw(t, "own"))
		limit := rapid.IntRange(20, 100).Draw(t, "limit")
		raw, full := appendEvidence(nil, from, c, limit)
		if len(raw) > limit {
			t.Fatalf("%d bytes, limit %d", len(raw), limit)
		}
		_, e, err := decodeEvidence(nil, string(appendBase64(nil, raw)), testWidth, testServices, testLimit)
		if err != nil {
			t.Fatal(err)
		}
		got := NewCounter(testWidth)
		e.mergeInto(got, 0, 64)
		cut := false
		for _, tag := range c.tags {
			for i := range testWidth {
				switch g, w := got.Of(tag, i), c.Of(tag, i); {
				case g > w:
					t.Fatal("says more than is known")
				case g < w:
					cut = true
				}
			}
		}
		if cut == full {
			t.Fatalf("cut %v, and reported whole %v", cut, full)
		}
	})
}

// TestEvidenceWithoutRoomToSpare: what just fits is the same as where there is
// room for anything, and is written without looking.
func TestEvidenceWithoutRoomToSpare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, c := drawSender(t), drawCounter(t)
		easy, _ := appendEvidence(nil, from, c, 1<<20)
		exact, full := appendEvidence(nil, from, c, len(easy))
		if !full || string(exact) != string(easy) {
			t.Fatalf("%x, full %v, want %x", exact, full, easy)
		}
		if _, full := appendEvidence(nil, from, c, len(easy)-1); full && len(c.tags) > 0 {
			t.Fatal("one byte less, and still whole")
		}
		rows := 0
		for i := range c.tags {
			rows += c.rowSize(i)
		}
		if most := c.maxSize(); rows > most {
			t.Fatalf("rows of %d bytes, at most %d", rows, most)
		}
	})
}

func TestOwnCountsAreNotCut(t *testing.T) {
	c := NewCounter(testWidth)
	for tag := Tag(1); tag <= 9; tag++ {
		c.Raise(tag, 0, 1)
	}
	raw, full := appendEvidence(nil, sender{tag: 9, seq: 1}, c, 30)
	_, e, err := decodeEvidence(nil, string(appendBase64(nil, raw)), testWidth, testServices, testLimit)
	if err != nil {
		t.Fatal(err)
	}
	got := NewCounter(testWidth)
	e.mergeInto(got, 0, 64)
	if full || got.Of(9, 0) != 1 || got.Of(1, 0) != 1 || got.Sum(0) != 2 {
		t.Errorf("whole %v, rows of %v", full, got.Tags())
	}
}

func TestEvidenceForAFewInstances(t *testing.T) {
	c := NewCounter(1)
	for tag := Tag(1); tag <= 5; tag++ {
		c.Raise(tag, 0, 1)
	}
	raw, _ := appendEvidence(nil, sender{tag: 1, seq: 1}, c, testLimit)
	_, e, err := decodeEvidence(nil, string(appendBase64(nil, raw)), 1, 0, testLimit)
	if err != nil {
		t.Fatal(err)
	}
	got := NewCounter(1)
	got.row(9)
	if e.mergeInto(got, 9, 3) {
		t.Error("reported room that there was not")
	}
	if n := got.Sum(0); n != 2 {
		t.Errorf("took %d rows over, want the 2 that fit", n)
	}
}

func TestEvidenceRefused(t *testing.T) {
	head := func(more ...byte) []byte {
		return append([]byte{evidenceVersion, 0, 0, 0, 0, 0, 7, 1, 2, 3}, more...)
	}
	row := func(tag byte, more ...byte) []byte {
		return append([]byte{0, 0, 0, 0, 0, tag}, more...)
	}
	for _, tc := range []struct {
		name string
		raw  []byte
	}{
		{"empty", nil},
		{"another version", append([]byte{2}, head()[1:]...)},
		{"no sender", []byte{evidenceVersion, 0, 0, 0, 0, 0, 0, 1, 2, 0}},
		{"no sequence number", []byte{evidenceVersion, 0, 0, 0, 0, 0, 7, 0, 2, 0}},
		{"cut in its head", head()[:8]},
		{"service beyond", []byte{evidenceVersion, 0, 0, 0, 0, 0, 7, 1, 2, testServices + 1}},
		{"a number in a longer form", []byte{evidenceVersion, 0, 0, 0, 0, 0, 7, 0x81, 0, 2, 0}},
		{"a number beyond 32 bits", []byte{evidenceVersion, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0x1f, 2, 0}},
		{"a number without end", []byte{evidenceVersion, 0, 0, 0, 0, 0, 7, 0xff, 0xff}},
		{"row of no instance", head(row(0, 1, 0, 1)...)},
		{"row without entries", head(row(1, 0)...)},
		{"rows out of order", head(append(row(2, 1, 0, 1), row(1, 1, 0, 1)...)...)},
		{"instance twice", head(append(row(1, 1, 0, 1), row(1, 1, 1, 1)...)...)},
		{"index beyond", head(row(1, 1, testWidth, 1)...)},
		{"second index beyond", head(row(1, 2, testWidth-1, 1, 0, 1)...)},
		{"more entries than indexes", head(row(1, testWidth+1)...)},
		{"count 0", head(row(1, 1, 0, 0)...)},
		{"cut in a row", head(row(1, 2, 0, 1)...)},
		{"cut in a tag", head(0, 0, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := decodeEvidence(nil, base64.RawURLEncoding.EncodeToString(tc.raw), testWidth, testServices, testLimit)
			if !errors.Is(err, errEvidenceForm) {
				t.Errorf("error %v, want %v", err, errEvidenceForm)
			}
		})
	}
	good := base64.RawURLEncoding.EncodeToString(head(row(1, 1, 0, 1)...))
	for name, value := range map[string]string{
		"padded":            good + "==",
		"standard alphabet": strings.NewReplacer("A", "+").Replace(good),
		"line break":        good[:4] + "\n" + good[4:],
		"a lone character":  good[:len(good)/4*4] + "A",
		"spare bits":        "AB",
	} {
		if _, _, err := decodeEvidence(nil, value, testWidth, testServices, testLimit); !errors.Is(err, errEvidenceForm) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, _, err := decodeEvidence(nil, good, testWidth, testServices, testLimit); err != nil {
		t.Errorf("the good one: %v", err)
	}
	if _, _, err := decodeEvidence(nil, good+strings.Repeat("A", testLimit), testWidth, testServices, testLimit); !errors.Is(err, errEvidenceSize) {
		t.Errorf("oversized: %v", err)
	}
}

func TestBase64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		text := string(appendBase64(nil, b))
		if want := base64.RawURLEncoding.EncodeToString(b); text != want {
			t.Fatalf("%q, want %q", text, want)
		}
		back, ok := appendBase64Decoded(nil, text)
		if !ok || string(back) != string(b) {
			t.Fatalf("%x, want %x", back, b)
		}
	})
}

// FuzzEvidence: whatever is accepted is the one encoding of what it says.
func FuzzEvidence(f *testing.F) {
	c := NewCounter(testWidth)
	c.Raise(3, 1, 4)
	c.Raise(9, 0, 1)
	c.Raise(9, 4, 300)
	for _, from := range []sender{{tag: 9, seq: 1}, {tag: tagMask, seq: 70000, k: 3, service: 2}} {
		raw, _ := appendEvidence(nil, from, c, testLimit)
		f.Add(string(appendBase64(nil, raw)))
	}
	f.Add("")
	f.Add("AQAAAAAABwECAwAAAAAAAQEAAQ")
	f.Fuzz(func(t *testing.T, value string) {
		_, e, err := decodeEvidence(nil, value, testWidth, testServices, testLimit)
		if err != nil {
			return
		}
		c := NewCounter(testWidth)
		if !e.mergeInto(c, 0, 1<<20) {
			t.Fatal("no room")
		}
		raw, full := appendEvidence(nil, e.sender, c, testLimit)
		if back := string(appendBase64(nil, raw)); !full || back != value {
			t.Fatalf("%q came back as %q", value, back)
		}
	})
}
