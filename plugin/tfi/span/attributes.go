// Package span turns what a sidecar observed into OTLP spans, and names their
// attributes for whoever reads them.
package span

// Attribute names of a sidecar's spans. Sequence numbers count the events of one
// (instance, trial) from 1; 0 or absence means that there was none.
const (
	// Kind is "call", "decision", "trial_end" or "problem".
	Kind = "sequencefi.kind"
	// Key is the activation key, 14 hex digits.
	Key = "sequencefi.key"
	// Service is the observer; Instance its tag, 12 hex digits.
	Service  = "sequencefi.service"
	Instance = "sequencefi.instance"
	// Role is "client" or "server".
	Role = "sequencefi.role"
	// Peer is the service at the other end; empty outside the mesh.
	Peer = "sequencefi.peer"
	// API is `METHOD /path/template` or `package.Service/Method`.
	API = "sequencefi.api"
	// K is the call's rank (int); 0 unknown.
	K = "sequencefi.k"
	// Path is the raw path with query, cut at 512 bytes.
	Path = "sequencefi.path"
	// Protocol is "http" or "grpc".
	Protocol = "sequencefi.protocol"
	// PolicyVersion that was applied when the request was judged.
	PolicyVersion = "sequencefi.policy_version"

	// ReqSeq and RespSeq are the events' own sequence numbers, which the messages
	// sent on carry; DeliveredSeq is that of the delivered event (client only).
	ReqSeq       = "sequencefi.req.seq"
	RespSeq      = "sequencefi.resp.seq"
	DeliveredSeq = "sequencefi.delivered.seq"
	// …FromInstance and …FromSeq are the tag and number received with the message.
	ReqFromInstance  = "sequencefi.req.from.instance"
	ReqFromSeq       = "sequencefi.req.from.seq"
	RespFromInstance = "sequencefi.resp.from.instance"
	RespFromSeq      = "sequencefi.resp.from.seq"
	// ReqTime, RespTime and DeliveredTime are wall times in Unix nanoseconds (int).
	ReqTime       = "sequencefi.req.time"
	RespTime      = "sequencefi.resp.time"
	DeliveredTime = "sequencefi.delivered.time"
	// Retry: the (tag, number) of the request was seen before (bool).
	Retry = "sequencefi.retry"
	// Unsent: the request was delayed, or TFIProxy still connecting to its callee, and was
	// never sent on, because its caller left meanwhile (bool). No report of it is to be
	// expected from its receiver.
	Unsent = "sequencefi.req.unsent"
	// Status is the answer's HTTP or gRPC status (int); Outcome "success" or "failure".
	Status  = "sequencefi.resp.status"
	Outcome = "sequencefi.resp.outcome"
	// Made: the proxy made the answer itself (bool). Broken: there was none (bool).
	Made   = "sequencefi.resp.made"
	Broken = "sequencefi.resp.broken"
	// Bytes and Chunks of the answer's body as forwarded (int), its content type, and
	// whether its length was announced (bool): from these the answer kind is learned.
	Bytes       = "sequencefi.resp.bytes"
	Chunks      = "sequencefi.resp.chunks"
	ContentType = "sequencefi.resp.content_type"
	Length      = "sequencefi.resp.length"

	// Fired is the id of the TFIC that fired last, FiredPhase "req" or "resp", Fault
	// "delay", "error", "abort" or "drop". Of a request that was delayed before its
	// answer was faulted, the decision's span tells.
	Fired      = "sequencefi.fired"
	FiredPhase = "sequencefi.fired.phase"
	Fault      = "sequencefi.fault"
	// LetGo: the fault was given up (an answer outgrew the buffer) (bool).
	LetGo = "sequencefi.fault.let_go"
	// Judged lists TFICs whose target matched and that did not fire, as
	// "id=reason", separated by commas. The reason is "when", "k", "guard", "spent" (it has
	// fired here), "instance" (it has, at another instance) or "other" (another TFIC
	// fired at this message).
	Judged = "sequencefi.judged"
	// Known lists "predicate index:count", separated by commas, as known when a TFIC
	// was last judged, its own firing not counted. Zeros are left out; indexes beyond the
	// predicates are those of the TFICs' firings.
	Known = "sequencefi.known"

	// Events is the final count of the instance's events (int; trial_end only).
	Events = "sequencefi.events"
	// Problem says what went wrong ("table_full", "state_lost", "internal", "bad_policy", …; problem only).
	Problem = "sequencefi.problem"
)
