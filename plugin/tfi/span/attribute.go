package span

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// An attribute whose name is known is copied from here in one piece, up to its value;
// then the lengths in it are put right. A name is shorter than 100 bytes.
type (
	// text is an attribute that is the empty string.
	text string
	// number is an attribute that is an integer of one byte, without that byte.
	number string
)

// keyed returns an attribute up to the length of its value, of which n bytes will follow.
func keyed(name string, n int) string {
	total := 1 + 1 + len(name) + 1 + 1 + n
	return string([]byte{tagAttribute, byte(total), tagKey, byte(len(name))}) + name + string(rune(tagValue))
}

func textOf(name string) text { return text(keyed(name, 2) + string([]byte{2, tagStringValue, 0})) }

func numberOf(name string) number { return number(keyed(name, 2) + string([]byte{2, tagIntValue})) }

// truth returns an attribute that is true.
func truth(name string) []byte { return []byte(keyed(name, 2) + string([]byte{2, tagBoolValue, 1})) }

var (
	textService       = textOf(Service)
	textPeer          = textOf(Peer)
	textAPI           = textOf(API)
	textPath          = textOf(Path)
	textPolicyVersion = textOf(PolicyVersion)
	textContentType   = textOf(ContentType)
	textFired         = textOf(Fired)
	textJudged        = textOf(Judged)
	textKnown         = textOf(Known)
	textProblem       = textOf(Problem)

	numberK      = numberOf(K)
	numberStatus = numberOf(Status)
	numberBytes  = numberOf(Bytes)
	numberChunks = numberOf(Chunks)
	numberEvents = numberOf(Events)
)

// Attributes that are known beforehand.
var (
	isRetry   = truth(Retry)
	isMade    = truth(Made)
	isBroken  = truth(Broken)
	hasLength = truth(Length)
	isLetGo   = truth(LetGo)
	isUnsent  = truth(Unsent)

	outcomes    = makeTexts(Outcome, tfi.OutcomeSuccess, tfi.OutcomeFailure)
	firedPhases = makeTexts(FiredPhase, tfi.PhaseReq, tfi.PhaseResp)
	faults      = makeTexts(Fault, tfi.FaultDelay, tfi.FaultError, tfi.FaultAbort, tfi.FaultDrop)
)

// word is a small number that has a name.
type word interface {
	~uint8
	String() string
}

// texts are the attributes of one name, by value.
type texts[W word] struct {
	name   text
	values [8][]byte
}

func makeTexts[W word](attribute string, values ...W) *texts[W] {
	t := &texts[W]{name: textOf(attribute)}
	for _, v := range values {
		t.values[v] = appendText(nil, t.name, v.String())
	}
	return t
}

// of returns the attribute with value w.
func (t *texts[W]) of(w W) []byte {
	if int(w) < len(t.values) && t.values[w] != nil {
		return t.values[w]
	}
	return appendText(nil, t.name, w.String()) // does not happen
}

// appendText appends an attribute whose value is v, cleaned.
func appendText[T string | []byte](b []byte, a text, v T) []byte {
	from := len(b)
	b = append(append(b, a...), v...)
	if value := b[from+len(a):]; !isASCII(value) {
		clean(value)
	}
	return endText(b, from, a)
}

// endText puts the lengths right of an attribute that begins at from, whose value
// has been appended to a.
func endText(b []byte, from int, a text) []byte {
	head := b[from : from+len(a)]
	n := len(b) - from - len(a)
	if int(a[1])+n >= 0x80 {
		return endLongText(b, from, a)
	}
	head[1] += byte(n)
	head[len(head)-3] += byte(n)
	head[len(head)-1] = byte(n)
	return b
}

// endLongText is endText where a byte does not do for each of the lengths.
func endLongText(b []byte, from int, a text) []byte {
	value := from + len(a)
	n := len(b) - value
	key := a[2 : len(a)-3]
	whole := 1 + protowire.SizeVarint(uint64(n)) + n
	var room [128]byte
	head := append(room[:0], tagAttribute)
	head = protowire.AppendVarint(head, uint64(len(key)+protowire.SizeVarint(uint64(whole))+whole))
	head = append(head, key...)
	head = protowire.AppendVarint(head, uint64(whole))
	head = append(head, tagStringValue)
	head = protowire.AppendVarint(head, uint64(n))
	b = append(b, head[len(a):]...) // room for what the lengths take beyond a byte each
	copy(b[from+len(head):], b[value:value+n])
	copy(b[from:], head)
	return b
}

func appendNumber(b []byte, a number, n int64) []byte {
	return endNumber(append(b, a...), len(a), n)
}

// endNumber appends the value of an attribute, and puts its lengths right; without it the
// attribute is the last size bytes of b.
func endNumber(b []byte, size int, n int64) []byte {
	if uint64(n) < 0x80 {
		return append(b, byte(n))
	}
	at := len(b)
	b = binary.AppendUvarint(b, uint64(n))
	more := byte(len(b) - at - 1)
	b[at-size+1] += more
	b[at-2] += more
	return b
}

// appendUvarint is protowire.AppendVarint, with the usual case inlined.
func appendUvarint(b []byte, n uint64) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	return protowire.AppendVarint(b, n)
}
