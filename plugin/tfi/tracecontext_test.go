package tfi

import (
	"strings"
	"testing"
)

// lines is a message's headers.
type lines map[string]string

func (l lines) Header(name string) (string, bool) {
	v, ok := l[name]
	return v, ok
}

var (
	keyA = Key{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x01}
	keyB = Key{0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70}
)

const (
	traceA   = "5f1caabbccddeeff0122334455667788"
	traceA64 = "5f1caabbccddeeff"
	traceB   = "5f1c1020304050607022334455667788"
	nobody   = "0af7651916cd43dd8448eb211c80319c"
	unknown  = "5f1c99999999999999aaaaaaaaaaaaaa"
	spanID   = "b7ad6b7169203331"
)

// policyOf is a policy with activations of keys, and nothing else.
func policyOf(header string, keys ...Key) *Policy {
	p := &Policy{Service: "a", TraceHeader: header, byPrefix: newActivationTable(len(keys))}
	for i, k := range keys {
		a := &Activation{Key: k, index: i}
		p.Activations = append(p.Activations, a)
		p.byPrefix.add(a)
	}
	return p
}

func TestFind(t *testing.T) {
	for _, tc := range []struct {
		name   string
		h      lines
		key    Key // zero: none
		trace  string
		parent string
		marked bool
		traced bool
	}{
		{name: "nothing", h: lines{}},
		{
			name: "traceparent", h: lines{"traceparent": "00-" + traceA + "-" + spanID + "-01"},
			key: keyA, trace: traceA, parent: spanID, marked: true, traced: true,
		},
		{
			name: "traceparent in upper case", h: lines{"traceparent": "00-" + strings.ToUpper(traceA) + "-" + strings.ToUpper(spanID) + "-01"},
			key: keyA, trace: traceA, parent: spanID, marked: true, traced: true,
		},
		{
			name: "traceparent of a later version", h: lines{"traceparent": "cc-" + traceA + "-" + spanID + "-01-what-the-future-brings"},
			key: keyA, trace: traceA, parent: spanID, marked: true, traced: true,
		},
		{
			name: "traceparent with a padded 64-bit id", h: lines{"traceparent": "00-0000000000000000" + traceA64 + "-" + spanID + "-01"},
			key: keyA, trace: "0000000000000000" + traceA64, parent: spanID, marked: true, traced: true,
		},
		{name: "traceparent of version ff", h: lines{"traceparent": "ff-" + traceA + "-" + spanID + "-01"}, traced: true},
		{name: "traceparent with a tail", h: lines{"traceparent": "00-" + traceA + "-" + spanID + "-01-x"}, traced: true},
		{name: "traceparent too short", h: lines{"traceparent": "00-" + traceA + "-" + spanID + "-0"}, traced: true},
		{name: "traceparent without span", h: lines{"traceparent": "00-" + traceA + "-0000000000000000-01"}, traced: true},
		{name: "traceparent with bad flags", h: lines{"traceparent": "00-" + traceA + "-" + spanID + "-0x"}, traced: true},
		{name: "traceparent of nobody", h: lines{"traceparent": "00-" + nobody + "-" + spanID + "-01"}, trace: nobody, parent: spanID, traced: true},
		{name: "key unknown here", h: lines{"traceparent": "00-" + unknown + "-" + spanID + "-01"}, trace: unknown, parent: spanID, marked: true, traced: true},
		{
			name: "last byte of the key differs", h: lines{"traceparent": "00-5f1caabbccddeeff0222334455667788-" + spanID + "-01"},
			trace: "5f1caabbccddeeff0222334455667788", parent: spanID, marked: true, traced: true,
		},
		{
			name: "the mark in the lower half of a full id", h: lines{"traceparent": "00-0af7651916cd43dd" + traceA64 + "-" + spanID + "-01"},
			trace: "0af7651916cd43dd" + traceA64, parent: spanID, traced: true,
		},
		{
			name: "b3", h: lines{"b3": traceA + "-" + spanID + "-1-05e3ac9a4f6e3b90"},
			key: keyA, trace: traceA, parent: spanID, marked: true, traced: true,
		},
		{
			name: "b3 of 64 bits", h: lines{"b3": traceA64 + "-" + spanID},
			key: keyA, trace: "0000000000000000" + traceA64, parent: spanID, marked: true, traced: true,
		},
		{name: "b3 with no trace", h: lines{"b3": "0"}, traced: true},
		{
			name: "b3 multi", h: lines{"x-b3-traceid": traceA, "x-b3-spanid": spanID, "x-b3-sampled": "1"},
			key: keyA, trace: traceA, parent: spanID, marked: true, traced: true,
		},
		{
			name: "b3 multi of 64 bits without span", h: lines{"x-b3-traceid": traceA64},
			key: keyA, trace: "0000000000000000" + traceA64, marked: true, traced: true,
		},
		{
			name: "b3 multi of a padded 64-bit id", h: lines{"x-b3-traceid": "0000000000000000" + traceA64, "x-b3-spanid": "nonsense"},
			key: keyA, trace: "0000000000000000" + traceA64, marked: true, traced: true,
		},
		{
			name: "uber", h: lines{"uber-trace-id": traceA + ":" + spanID + ":0:1"},
			key: keyA, trace: traceA, parent: spanID, marked: true, traced: true,
		},
		{
			name: "uber, encoded, of 64 bits, short span", h: lines{"uber-trace-id": traceA64 + "%3Aabc%3a0%3A1"},
			key: keyA, trace: "0000000000000000" + traceA64, parent: "0000000000000abc", marked: true, traced: true,
		},
		{name: "uber with too little", h: lines{"uber-trace-id": traceA + ":" + spanID}, traced: true},
		{name: "uber with a bad span", h: lines{"uber-trace-id": traceA + ":xyz:0:1"}, traced: true},
		{name: "uber with half a bad span", h: lines{"uber-trace-id": traceA + ":ag:0:1"}, traced: true},
		{name: "uber with the other half bad", h: lines{"uber-trace-id": traceA + ":ga:0:1"}, traced: true},
		{
			name: "tracestate beside a new trace", h: lines{"traceparent": "00-" + nobody + "-" + spanID + "-01", "tracestate": "a=b, sfi=AABBccddeeff01 ,c=d"},
			key: keyA, trace: nobody, parent: spanID, marked: true, traced: true,
		},
		{
			name: "tracestate alone", h: lines{"tracestate": "sfi=aabbccddeeff01"},
			key: keyA, trace: "5f1caabbccddeeff0100000000000000", marked: true,
		},
		{name: "tracestate of a key unknown here", h: lines{"tracestate": "sfi=99999999999999"}, marked: true},
		{name: "tracestate with a bad key", h: lines{"tracestate": "sfi=aabb"}},
		{name: "tracestate of others", h: lines{"tracestate": "rojo=00f067aa0ba902b7,,=,sfix=1"}},
		{
			name: "a marked id unknown here does not hide b3", h: lines{"traceparent": "00-" + unknown + "-" + spanID + "-01", "b3": traceB + "-" + spanID},
			key: keyB, trace: traceB, parent: spanID, marked: true, traced: true,
		},
		{
			name: "the named header comes first", h: lines{"x-trace": traceB, "traceparent": "00-" + traceA + "-" + spanID + "-01"},
			key: keyB, trace: traceB, marked: true, traced: true,
		},
		{
			name: "the named header has its parent beside it", h: lines{"x-trace": traceA, "traceparent": "00-" + traceB + "-05e3ac9a4f6e3b90-01", "b3": traceA64 + "-" + spanID},
			key: keyA, trace: traceA, parent: spanID, marked: true, traced: true,
		},
		{
			name: "the named header says nothing", h: lines{"x-trace": "?", "traceparent": "00-" + traceA + "-" + spanID + "-01"},
			key: keyA, trace: traceA, parent: spanID, marked: true, traced: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := policyOf("x-trace", keyA, keyB).find(tc.h)
			var key Key
			if got.act != nil {
				key = got.act.Key
			}
			trace, parent := "", ""
			if got.trace != (TraceID{}) {
				trace = got.trace.String()
			}
			if got.parent != (SpanID{}) {
				parent = strings.ToLower(hexText(got.parent[:]))
			}
			if key != tc.key || trace != tc.trace || parent != tc.parent || got.marked != tc.marked || got.traced != tc.traced {
				t.Errorf("key %v trace %q parent %q marked %v traced %v", key, trace, parent, got.marked, got.traced)
			}
		})
	}
}

func hexText(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

func TestMadeTraceparentIsFoundAgain(t *testing.T) {
	text := string(appendTraceparent(nil, NewTraceID(keyA, 0x0102030405060708), SpanID{1}))
	if want := "00-5f1caabbccddeeff0108070605040302-0100000000000000-01"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if l := policyOf("", keyA).find(lines{"traceparent": text}); l.act == nil {
		t.Error("not found")
	}
}

func TestParseKey(t *testing.T) {
	k, err := ParseKey("AAbbccddeeff01")
	if err != nil || k != keyA || k.String() != "aabbccddeeff01" {
		t.Errorf("%v %v", k, err)
	}
	for _, s := range []string{"", "aabbccddeeff0", "aabbccddeeff0g", "aabbccddeeff0101"} {
		if _, err := ParseKey(s); err == nil {
			t.Errorf("%q passes for a key", s)
		}
	}
}

// FuzzTraceHeaders: any text may stand in any of the headers.
func FuzzTraceHeaders(f *testing.F) {
	for _, v := range []string{
		"00-" + traceA + "-" + spanID + "-01",
		traceA + "-" + spanID + "-1-" + spanID,
		traceA64 + "-" + spanID,
		traceA64,
		traceA + ":" + spanID + ":0:1",
		traceA64 + "%3Aabc%3a0%3A1",
		"a=b,sfi=aabbccddeeff01",
		"0", "-", ":::", "%3", ",,=",
	} {
		f.Add(v)
	}
	p := policyOf("x-trace", keyA, keyB)
	f.Fuzz(func(t *testing.T, v string) {
		for _, name := range []string{"x-trace", "traceparent", "b3", "x-b3-traceid", "uber-trace-id", "tracestate"} {
			l := p.find(lines{name: v, "x-b3-spanid": v})
			if l.act == nil {
				continue
			}
			if !l.marked {
				t.Fatalf("%s: %q: found without a mark", name, v)
			}
			if !strings.Contains(strings.ToLower(v), hexText(l.act.Key[:6])) {
				t.Fatalf("%s: %q: found %v", name, v, l.act.Key)
			}
		}
	})
}
