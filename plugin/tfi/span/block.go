package span

import (
	"encoding/binary"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// A block is a run of fields and attributes whose sizes are known. It is copied as a
// whole, and what differs from span to span is written into it: to append some
// thirty pieces of a few bytes costs more than all they say.

// opening is what every span of a kind begins with. The attribute of the instance
// is its end, so that it can be left out.
type opening struct {
	bytes         []byte
	key, instance int // of the hex digits
	// anonymous is the size without the instance.
	anonymous int
}

// Places in an opening; the attributes come behind.
const (
	atTrace = 2
	atID    = atTrace + 16 + 2
	atKind  = atID + 8 + 1
	atStart = atKind + 1 + 1
	atEnd   = atStart + 8 + 1
)

// openings are indexed by the kind modulo their number, so a kind beyond the last would be
// reported as another.
var openings = makeOpenings(tfi.KindCall, tfi.KindDecision, tfi.KindTrialEnd, tfi.KindProblem)

var _ [len(openings)]struct{} = [tfi.KindProblem + 1]struct{}{} // the last kind

func makeOpenings(kinds ...tfi.RecordKind) (all [4]opening) {
	for _, kind := range kinds {
		o := &all[kind]
		b := make([]byte, atEnd+8)
		b[atTrace-2], b[atTrace-1] = tagTraceID, 16
		b[atID-2], b[atID-1] = tagSpanID, 8
		b[atKind-1] = tagKind
		b[atStart-1] = tagStart
		b[atEnd-1] = tagEnd
		b = appendText(b, textOf(Kind), kind.String())
		b = appendText(b, textOf(Key), make([]byte, keyDigits))
		o.key, o.anonymous = len(b)-keyDigits, len(b)
		o.bytes = appendText(b, textOf(Instance), make([]byte, tagDigits))
		o.instance = len(o.bytes) - tagDigits
	}
	return all
}

// Lengths in hex digits.
const (
	keyDigits = 2 * len(tfi.Key{})
	tagDigits = 12
)

// append appends what s begins with; kind is the span's, and first and last are
// its bounds.
func (o *opening) append(b []byte, s *Span, kind byte, first, last int64) []byte {
	r := s.Record
	from := len(b)
	b = append(b, o.bytes...)
	to := b[from:]
	*(*[16]byte)(to[atTrace:]) = r.Trace
	*(*[8]byte)(to[atID:]) = s.ID
	to[atKind] = kind
	binary.LittleEndian.PutUint64(to[atStart:], uint64(first))
	binary.LittleEndian.PutUint64(to[atEnd:], uint64(last))
	key := (*[keyDigits]byte)(to[o.key:])
	for i, c := range r.Key {
		key[2*i], key[2*i+1] = hexDigits[c>>4], hexDigits[c&15]
	}
	if r.Instance == 0 {
		return b[:from+o.anonymous]
	}
	putTag((*[tagDigits]byte)(to[o.instance:]), r.Instance)
	return b
}

// sides are the attributes of a role and, by whether it is gRPC, the protocol.
var sides = func() (all [tfi.RoleServer + 1][2][]byte) {
	for _, role := range []tfi.Role{tfi.RoleClient, tfi.RoleServer} {
		for i, protocol := range []string{"http", "grpc"} {
			all[role][i] = appendText(appendText(nil, textOf(Role), role.String()), textOf(Protocol), protocol)
		}
	}
	return all
}()

// side returns those of r, which has a role.
func side(r *tfi.Record) []byte {
	protocol := 0
	if r.GRPC {
		protocol = 1
	}
	return sides[min(r.Role, tfi.RoleServer)][protocol]
}

// moment is the attributes of an event: when it was, and its number, of which what
// it takes differs, and so ends the block.
type moment struct {
	bytes     []byte
	at        int // of the time
	when, seq number
	from      *origin // nil: nobody sent it
}

// origin is the attributes of who sent an event's message, and of its number there.
type origin struct {
	bytes []byte
	at    int // of the instance
	seq   number
}

var (
	momentReq       = makeMoment(ReqTime, ReqSeq, makeOrigin(ReqFromInstance, ReqFromSeq))
	momentResp      = makeMoment(RespTime, RespSeq, makeOrigin(RespFromInstance, RespFromSeq))
	momentDelivered = makeMoment(DeliveredTime, DeliveredSeq, nil)
)

// usualWall is the least wall time that is a number of usualWallSize bytes: all of
// the years from 1972 to 2262 are.
const (
	usualWall     = 1 << 56
	usualWallSize = 9
)

func makeMoment(when, seq string, from *origin) *moment {
	m := &moment{when: numberOf(when), seq: numberOf(seq), from: from}
	m.bytes = appendNumber(nil, m.when, usualWall)
	m.at = len(m.bytes) - usualWallSize
	m.bytes = append(m.bytes, m.seq...)
	return m
}

func makeOrigin(instance, seq string) *origin {
	o := &origin{seq: numberOf(seq)}
	o.bytes = appendText(nil, textOf(instance), make([]byte, tagDigits))
	o.at = len(o.bytes) - tagDigits
	o.bytes = append(o.bytes, o.seq...)
	return o
}

// append appends event e, if there was one, that was at wall.
func (m *moment) append(b []byte, e *tfi.EventRecord, wall int64) []byte {
	if e.Seq == 0 {
		return b
	}
	if wall >= usualWall {
		from := len(b)
		b = append(b, m.bytes...)
		putUsualWall((*[usualWallSize]byte)(b[from+m.at:]), uint64(wall))
		b = endNumber(b, len(m.seq), int64(e.Seq))
	} else {
		b = appendNumber(appendNumber(b, m.when, wall), m.seq, int64(e.Seq))
	}
	if o := m.from; o != nil && e.From != 0 {
		from := len(b)
		b = append(b, o.bytes...)
		putTag((*[tagDigits]byte)(b[from+o.at:]), e.From)
		b = endNumber(b, len(o.seq), int64(e.FromSeq))
	}
	return b
}

// putUsualWall writes n, from usualWall on, as a varint.
func putUsualWall(to *[usualWallSize]byte, n uint64) {
	for i := range usualWallSize - 1 {
		to[i] = byte(n) | 0x80
		n >>= 7
	}
	to[usualWallSize-1] = byte(n)
}

const hexDigits = "0123456789abcdef"

func putTag(to *[tagDigits]byte, t tfi.Tag) {
	for i := tagDigits - 1; i >= 0; i-- {
		to[i] = hexDigits[t&15]
		t >>= 4
	}
}
