package tfi

import "time"

// RecordKind says what a [Record] reports.
type RecordKind uint8

// The record kinds.
const (
	KindCall     RecordKind = 0 // one call at one sidecar
	KindDecision RecordKind = 1 // the same, at the moment at which a fault was decided
	KindTrialEnd RecordKind = 2 // the final count of events; see [State.End]
	KindProblem  RecordKind = 3 // something that makes the trial invalid
)

// String returns "call", "decision", "trial_end" or "problem".
func (k RecordKind) String() string {
	switch k {
	case KindCall:
		return "call"
	case KindDecision:
		return "decision"
	case KindTrialEnd:
		return "trial_end"
	case KindProblem:
		return "problem"
	}
	return "unknown"
}

// Problems that a [Record] may name.
const (
	ProblemTableFull = "table_full" // the trial was not activated
	ProblemInternal  = "internal"   // the store failed
	ProblemStateLost = "state_lost" // the state was thrown away in the middle of a call
	ProblemPolicy    = "bad_policy" // the adapter got a policy that it cannot read
)

// Record is what a sidecar reports; package span encodes it. Sequence numbers and
// tags are 0 where there is none.
//
// The byte slices belong to the [Call] and change with the next engine call.
type Record struct {
	Kind          RecordKind
	Key           Key
	Trace         TraceID
	Parent        SpanID // of the incoming trace header
	Service       string
	PolicyVersion string
	Instance      Tag

	Role Role
	// Peer is the service at the other end; empty outside the mesh. For a cluster
	// that no policy names it is the cluster's name.
	Peer  []byte
	API   []byte
	K     uint32 // 0 unknown
	Path  []byte // raw with query, cut at 512 bytes
	GRPC  bool
	Retry bool // the mesh sent the request before
	// Unsent: the request was kept back by a delay and never sent on, because its
	// caller left meanwhile. The adapter fills it in.
	Unsent bool

	Req       EventRecord
	Resp      EventRecord
	Delivered EventRecord

	// Status, Outcome, Made and Broken are of the answer, and hold if Resp.Seq is not 0.
	Status  int
	Outcome Outcome
	Made    bool
	Broken  bool

	// Fired is the TFIC that fired last; nil: none. Its phase is Fired.Target.Phase.
	// Where a request was delayed and its answer faulted too, the KindDecision of the
	// request tells of the first.
	Fired *TFIC
	// LetGo: the fault was given up.
	LetGo bool
	// Judged are the TFICs whose target matched and that did not fire.
	Judged []Judgement
	// Known is what was known when a TFIC was last judged: all counts but zeros.
	Known []Known

	// Bytes and Chunks of the answer's body as forwarded, its content type, and
	// whether its length was announced. The adapter fills them in.
	Bytes       int64
	Chunks      int64
	ContentType []byte
	Length      bool

	// Events is the final count; KindTrialEnd only.
	Events uint32
	// Problem says what went wrong; KindProblem only.
	Problem string
}

// EventRecord is one event of a call.
type EventRecord struct {
	// Seq is the event's number; the message sent on carries it. 0: no such event.
	Seq uint32
	// From and FromSeq came with the message.
	From    Tag
	FromSeq uint32
	// At is when it happened on the sidecar's monotonic clock.
	At time.Duration
}

// Reason says why a TFIC did not fire.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	ReasonWhen     Reason = 1 // the answer ended otherwise
	ReasonK        Reason = 2 // a call of another rank
	ReasonGuard    Reason = 3 // its guard did not hold
	ReasonSpent    Reason = 4 // it has fired here
	ReasonInstance Reason = 5 // it has fired, at another instance
	ReasonOther    Reason = 6 // another TFIC fired at this message
)

// String returns "when", "k", "guard", "spent", "instance" or "other".
func (r Reason) String() string {
	switch r {
	case ReasonWhen:
		return "when"
	case ReasonK:
		return "k"
	case ReasonGuard:
		return "guard"
	case ReasonSpent:
		return "spent"
	case ReasonInstance:
		return "instance"
	case ReasonOther:
		return "other"
	}
	return "unknown"
}

// Judgement is a TFIC that did not fire, and why.
type Judgement struct {
	TFIC   *TFIC
	Phase  Phase
	Reason Reason
}

// Known is one count as known to a sidecar. Index is that of the predicate, or
// that of the TFIC beyond the predicates.
type Known struct {
	Index int
	Count uint64
}
