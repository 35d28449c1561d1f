package campaign

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/oracle"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// Config is what a campaign works with. Plane, Fleet, Source, Topology and Spec are
// required, and StartSolver where candidates are wanted.
type Config struct {
	Spec     *campaignv1.CampaignSpec
	Topology *topology.Topology

	Plane       Plane
	Fleet       Fleet
	Source      Source
	StartSolver StartSolver

	// Progress is told what happens; nil: nobody.
	Progress Progress
	// Recorder keeps trials; nil: nobody does.
	Recorder Recorder
	// Version of SequenceFI, for the report.
	Version string

	// ReadyTimeout is how long sidecars may take to connect, and to come back once they are
	// lost; 0 means 30 s.
	ReadyTimeout time.Duration
	// Nobody says why it is in vain to wait for sidecars, or returns ""; it is asked once,
	// where none has connected for two seconds. Nil: they have all of ReadyTimeout.
	Nobody func(context.Context) string
	// PushTimeout is how long sidecars may take to acknowledge a policy. The first
	// push loads the plugin, which takes seconds, and more on a busy machine; 0 means 2 min.
	PushTimeout time.Duration
	// ReportTimeout is how long reports of a trial may be incomplete after its last
	// answer before it is invalid, beyond what its faults delay; 0 means 5 s.
	ReportTimeout time.Duration
	// Lifetime is how long an activation may wait for its run; 0 means 2 minutes. It
	// lives as much longer as the run may take. The shorter, the sooner a fault ends whose control
	// plane died; a round of trials should fit into it, or it is pushed again.
	Lifetime time.Duration
	// MinQuiet is the least quiet period; 0 means 150 ms.
	MinQuiet time.Duration
	// CleanQuiet is the quiet period of the first two clean runs, before anything is known
	// of their tail; 0 means 250 ms.
	CleanQuiet time.Duration
	// Random gives keys; nil: crypto/rand.
	Random io.Reader
}

const (
	defaultReadyTimeout  = 30 * time.Second
	defaultPushTimeout   = 2 * time.Minute
	defaultReportTimeout = 5 * time.Second
	defaultLifetime      = 2 * time.Minute
	defaultMinQuiet      = 150 * time.Millisecond
	defaultCleanQuiet    = 250 * time.Millisecond
	defaultCleanRuns     = 4
	defaultTrials        = 1000
	defaultDuration      = time.Hour
	defaultConfirmations = 1
	// maxWait bounds how long a trial is waited for because of its faults.
	maxWait = 10 * time.Minute
	// maxRepeats of a trial that says nothing.
	maxRepeats = 3
)

// ErrConfig says that a Config lacks something.
var ErrConfig = errors.New("incomplete campaign configuration")

// Validate returns all problems of a campaign and its topology, the expressions of
// workload and oracle included. Errors: *valid.InvalidError.
func Validate(spec *campaignv1.CampaignSpec, t *topology.Topology) error {
	_, _, err := compile(spec, t)
	return err
}

// compile checks everything and compiles what is to be run.
func compile(spec *campaignv1.CampaignSpec, t *topology.Topology) (*workload.Workload, *oracle.Oracle, error) {
	// The compilers say again what valid.CampaignSpec says of their part.
	problems := valid.CampaignSpec(spec)
	var propagation workload.Propagation
	if t != nil {
		propagation = workload.PropagationOf(t)
	}
	w, err := workload.Compile(spec.GetWorkload(), propagation)
	problems = merge(problems, "workload", err)
	o, err := oracle.Compile(spec.GetOracle())
	problems = merge(problems, "oracle", err)
	if w != nil && o != nil {
		problems = append(problems, valid.Under("oracle", o.Unknown(w.Steps(), w.Probes()))...)
	}
	if t != nil {
		names := make(map[string]bool)
		for _, name := range append(t.Names(), t.Leaves...) {
			names[name] = true
		}
		for i, callee := range spec.GetFaults().GetCallees() {
			if !names[callee] {
				problems = append(problems, valid.Problem{
					Path: fmt.Sprintf("faults.callees[%d]", i),
					Want: fmt.Sprintf("must be a service of the topology (got %q)", callee),
				})
			}
		}
	}
	return w, o, valid.Error(problems)
}

// merge adds the problems of a part that are not known yet.
func merge(problems []valid.Problem, path string, err error) []valid.Problem {
	var invalid *valid.InvalidError
	if !errors.As(err, &invalid) {
		return problems
	}
	known := make(map[valid.Problem]bool, len(problems))
	for _, p := range problems {
		known[p] = true
	}
	for _, p := range valid.Under(path, invalid.Problems) {
		if !known[p] {
			problems = append(problems, p)
		}
	}
	return problems
}

// complete fills in what was left out.
func (c Config) complete() (Config, error) {
	var errs []error
	for _, required := range []struct {
		name  string
		there bool
	}{
		{"Spec", c.Spec != nil},
		{"Topology", c.Topology != nil},
		{"Plane", c.Plane != nil},
		{"Fleet", c.Fleet != nil},
		{"Source", c.Source != nil},
	} {
		if !required.there {
			errs = append(errs, fmt.Errorf("%w: %s is nil", ErrConfig, required.name))
		}
	}
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{
		{&c.ReadyTimeout, defaultReadyTimeout},
		{&c.PushTimeout, defaultPushTimeout},
		{&c.ReportTimeout, defaultReportTimeout},
		{&c.Lifetime, defaultLifetime},
		{&c.MinQuiet, defaultMinQuiet},
		{&c.CleanQuiet, defaultCleanQuiet},
	} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if c.Progress == nil {
		c.Progress = silent{}
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	return c, errors.Join(errs...)
}

// silent is nobody's progress.
type silent struct{}

var _ Progress = silent{}

// Update implements Progress.
func (silent) Update(Update) {}

func cleanRuns(spec *campaignv1.CampaignSpec) int {
	return orDefault(spec.GetBudget().GetCleanRuns(), defaultCleanRuns)
}

func orDefault(n uint32, or int) int {
	if n == 0 {
		return or
	}
	return int(n)
}

// waitOf returns by how much the faults may delay what a trial does.
func waitOf(tfics []*tfiv1.Tfic) time.Duration {
	const defaultDrop = 30 * time.Second
	var sum time.Duration
	for _, t := range tfics {
		var d time.Duration
		switch kind := t.GetFault().GetKind().(type) {
		case *tfiv1.Fault_Drop:
			if d = kind.Drop.GetLimit().AsDuration(); d == 0 {
				d = defaultDrop
			}
		case *tfiv1.Fault_Delay:
			d = longest(kind.Delay)
		}
		// Static injection has no limit; more than a few in a row no client waits for.
		const most = 10
		sum += d * time.Duration(min(most, max(1, t.GetMaxInjections())))
	}
	return min(sum, maxWait)
}

// longest returns how long a delay hardly ever exceeds.
func longest(d *tfiv1.Delay) time.Duration {
	const most = 5 * time.Minute
	switch dist := d.GetDistribution().(type) {
	case *tfiv1.Delay_Fixed:
		return dist.Fixed.AsDuration()
	case *tfiv1.Delay_Uniform:
		return dist.Uniform.GetMax().AsDuration()
	case *tfiv1.Delay_Normal:
		return min(most, dist.Normal.GetMean().AsDuration()+4*dist.Normal.GetStddev().AsDuration())
	case *tfiv1.Delay_Exponential:
		return min(most, 7*dist.Exponential.GetMean().AsDuration())
	}
	return 0
}
