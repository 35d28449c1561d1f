package campaign

import (
	"context"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Plane tells sidecars what to do.
type Plane interface {
	// Apply replaces the policies of the services named, and returns the version
	// that their sidecars will report. It MUST leave the policies of others alone.
	Apply(ctx context.Context, policies map[string]*tfiv1.Policy) (version string, err error)
	// Wait returns when all sidecars of the services have acknowledged version or
	// a later one. The acknowledgement is a hint: events tell what was applied.
	Wait(ctx context.Context, version string, services []string) error
	// Remove takes the policies of the services away.
	Remove(services ...string)
}

// Fleet knows the sidecars.
type Fleet interface {
	// Sidecars returns those that are, or were lately, connected, by service and
	// instance. The caller owns the slice.
	Sidecars() []Sidecar
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Sidecar is one sidecar.
type Sidecar struct {
	Service, Instance string
	// Proxy as "envoy 1.40.0".
	Proxy string
	// Connected to the control plane now.
	Connected bool
	// Acked is the version of the policy in force.
	Acked string
	// Nack is its last refusal of a policy; Refused says why it cannot be given one, or
	// why it is not connected. Both are empty if there is none.
	Nack, Refused string
}

// Source has the spans of trials.
type Source interface {
	// Spans returns all spans of the traces that have arrived. The caller may not
	// change what it gets. A trace that nobody has reported yet is no error.
	Spans(ctx context.Context, ids [][16]byte) (*tracev1.TracesData, error)
	// Wait returns when the traces have more than seen spans, or ctx ends.
	Wait(ctx context.Context, ids [][16]byte, seen int) error
}

// Search synthesises candidates (proto: sequencefi.solver.v1.SolverService).
type Search interface {
	// AddTraces adds clean runs and returns what was odd in them.
	AddTraces(ctx context.Context, trials []*solverv1.RecordedTrial) (warnings []string, err error)
	// AddResults adds judged trials.
	AddResults(ctx context.Context, results []*solverv1.Result) error
	// Next returns at most limit candidates, best first, each once (0: all); none
	// where the search is over.
	Next(ctx context.Context, limit int) ([]*solverv1.Candidate, error)
}

// Solver is a search that tells how far it is.
type Solver interface {
	Search
	// Statistics of the search so far.
	Statistics(ctx context.Context) (*solverv1.GetStatisticsResponse, error)
	// End frees the search.
	End(ctx context.Context) error
}

// StartSolver starts a search.
type StartSolver func(ctx context.Context, request *solverv1.StartSessionRequest) (Solver, error)

// Recorder keeps trials beyond the life of this process. Messages belong to the
// campaign: a recorder that keeps them clones them.
type Recorder interface {
	// RecordTrial is told of each judged trial, with its serialised TracesData.
	RecordTrial(ctx context.Context, trial *campaignv1.Trial, traces []byte) error
}

// Progress is told how a campaign goes on. Calls come one at a time.
type Progress interface {
	Update(u Update)
}

// Stage of a campaign.
type Stage string

// The stages, in their order.
const (
	StageFleet    Stage = "fleet"    // waiting for sidecars
	StageLoad     Stage = "load"     // waiting for the first policy to be in force
	StageClean    Stage = "clean"    // clean runs
	StageSearch   Stage = "search"   // trials of candidates
	StageContrast Stage = "contrast" // the same faults, injected statically
	StageReplay   Stage = "replay"   // runs of a witness
	StageDone     Stage = "done"
)

// Update is a step of progress.
type Update struct {
	Stage Stage
	// Text for people where there is something to say; a warning if Warning.
	Text    string
	Warning bool
	// Trial that has just been judged; nil: none.
	Trial *campaignv1.Trial
	// Finding that is new; nil: none.
	Finding *campaignv1.Finding
	// Done and Planned runs of this stage; both are 0 with an update that counts
	// nothing, as that of a control run. Planned grows as the search goes on.
	Done, Planned int
	// Elapsed since the campaign began.
	Elapsed time.Duration
}
