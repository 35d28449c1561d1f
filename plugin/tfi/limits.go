package tfi

import "time"

// Limits bound what an activation may cost a sidecar. The zero value of a field
// stands for its default, which is what sidecars use; who replays traces raises
// them.
type Limits struct {
	// Predicates of one activation; 64.
	Predicates int
	// TFICs of one activation; 64.
	TFICs int
	// GuardNodes of one guard; 256.
	GuardNodes int
	// EvidenceBytes of one evidence header's value; 1,024.
	EvidenceBytes int
	// Instances whose counts one state keeps, its own included; 64.
	Instances int
	// Ops whose calls one state ranks; 256. A call beyond has the rank 0, unknown.
	Ops int
	// Requests that one state remembers in order to know a retry; 256, the latest.
	Requests int
}

func (l Limits) orDefault() Limits {
	for _, f := range []struct {
		value *int
		or    int
	}{
		{&l.Predicates, 64},
		{&l.TFICs, 64},
		{&l.GuardNodes, 256},
		{&l.EvidenceBytes, 1024},
		{&l.Instances, 64},
		{&l.Ops, 256},
		{&l.Requests, 256},
	} {
		if *f.value <= 0 {
			*f.value = f.or
		}
	}
	return l
}

// Bounds of a policy that no one needs to raise.
const (
	maxRemaining    = time.Hour
	maxDelay        = 5 * time.Minute
	defaultDrop     = 30 * time.Second
	maxGuardDepth   = 16
	maxFaultBody    = 4 << 10
	maxFaultHeaders = 16
	maxID           = 64
)

// Bounds of what is kept of one call.
const (
	// maxAPI cuts an api: a longer one names no TFIC's target, and both ends cut alike.
	maxAPI = 1024
	// maxPath cuts the path that is reported.
	maxPath = 512
	// maxName cuts the name of an unknown cluster.
	maxName = 256
)
