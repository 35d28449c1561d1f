package span

import (
	"encoding/hex"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// name is an attribute's name as it goes on the wire: a KeyValue up to the
// length of its value.
type name string

// wire returns the form of a name, which is shorter than 100 bytes.
func wire(attribute string) name {
	return name(string([]byte{tagKey, byte(len(attribute))}) + attribute + string(rune(tagValue)))
}

var (
	nameKey           = wire(Key)
	nameService       = wire(Service)
	nameInstance      = wire(Instance)
	namePeer          = wire(Peer)
	nameAPI           = wire(API)
	nameK             = wire(K)
	namePath          = wire(Path)
	namePolicyVersion = wire(PolicyVersion)
	nameStatus        = wire(Status)
	nameBytes         = wire(Bytes)
	nameChunks        = wire(Chunks)
	nameContentType   = wire(ContentType)
	nameFired         = wire(Fired)
	nameJudged        = wire(Judged)
	nameKnown         = wire(Known)
	nameEvents        = wire(Events)
	nameProblem       = wire(Problem)
)

// eventNames are the names of an event's attributes; from is empty where nobody sent it.
type eventNames struct{ seq, at, from, fromSeq name }

var (
	reqNames       = eventNames{wire(ReqSeq), wire(ReqTime), wire(ReqFromInstance), wire(ReqFromSeq)}
	respNames      = eventNames{wire(RespSeq), wire(RespTime), wire(RespFromInstance), wire(RespFromSeq)}
	deliveredNames = eventNames{seq: wire(DeliveredSeq), at: wire(DeliveredTime)}
)

// Attributes that are known beforehand.
var (
	protocolHTTP = appendText(nil, wire(Protocol), "http")
	protocolGRPC = appendText(nil, wire(Protocol), "grpc")
	isRetry      = appendTrue(wire(Retry))
	isMade       = appendTrue(wire(Made))
	isBroken     = appendTrue(wire(Broken))
	hasLength    = appendTrue(wire(Length))
	isLetGo      = appendTrue(wire(LetGo))

	kinds       = makeTexts(Kind, tfi.KindCall, tfi.KindDecision, tfi.KindTrialEnd, tfi.KindProblem)
	roles       = makeTexts(Role, tfi.RoleClient, tfi.RoleServer)
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
	name   name
	values [8][]byte
}

func makeTexts[W word](attribute string, values ...W) *texts[W] {
	t := &texts[W]{name: wire(attribute)}
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

// appendHead appends an attribute with a string of n bytes, which the caller appends.
func appendHead(b []byte, a name, n int) []byte {
	return appendValueHead(append(b, tagAttribute), a, n)
}

func appendValueHead(b []byte, a name, n int) []byte {
	if total := len(a) + 3 + n; total < 0x80 {
		b = append(b, byte(total))
		b = append(b, a...)
		return append(b, byte(2+n), tagStringValue, byte(n))
	}
	value := 1 + protowire.SizeVarint(uint64(n)) + n
	b = appendUvarint(b, uint64(len(a)+protowire.SizeVarint(uint64(value))+value))
	b = append(b, a...)
	b = appendUvarint(b, uint64(value))
	b = append(b, tagStringValue)
	return appendUvarint(b, uint64(n))
}

// appendAttribute appends a KeyValue without its tag.
func appendAttribute(b []byte, a name, v string) []byte {
	b = appendValueHead(b, a, len(v))
	from := len(b)
	b = append(b, v...)
	clean(b[from:])
	return b
}

func appendText(b []byte, a name, v string) []byte {
	return appendAttribute(append(b, tagAttribute), a, v)
}

func appendBytes(b []byte, a name, v []byte) []byte {
	b = appendHead(b, a, len(v))
	from := len(b)
	b = append(b, v...)
	clean(b[from:])
	return b
}

func appendHex(b []byte, a name, v []byte) []byte {
	return hex.AppendEncode(appendHead(b, a, 2*len(v)), v)
}

func appendTag(b []byte, a name, t tfi.Tag) []byte {
	const size = 12
	if t == 0 {
		return b
	}
	return t.AppendText(appendHead(b, a, size))
}

func appendNumber(b []byte, a name, n int64) []byte {
	size := protowire.SizeVarint(uint64(n))
	b = append(b, tagAttribute, byte(len(a)+2+size))
	b = append(b, a...)
	b = append(b, byte(1+size), tagIntValue)
	return appendUvarint(b, uint64(n))
}

// appendTrue returns an attribute that is true.
func appendTrue(a name) []byte {
	b := append([]byte{tagAttribute, byte(len(a) + 3)}, a...)
	return append(b, 2, tagBoolValue, 1)
}

// appendUvarint is protowire.AppendVarint, with the usual case inlined.
func appendUvarint(b []byte, n uint64) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	return protowire.AppendVarint(b, n)
}
