package topology

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile/protoyaml"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// ErrInvalid says that a topology cannot be used; the error that wraps it is an
// [*InvalidError] and lists every reason.
var ErrInvalid = errors.New("invalid topology")

// maxFileSize bounds a topology file; a thousand services need about 200 KiB.
const maxFileSize = 4 << 20

// Problem is one thing wrong in a topology, with its path as
// `services[1].calls[0].listen`; empty: the file.
type Problem = valid.Problem

// InvalidError lists all problems of a topology. It wraps [ErrInvalid].
type InvalidError struct {
	// Source names the file; empty where there is none.
	Source string
	// Problems in the order of the file; at least one.
	Problems []Problem
}

func (e *InvalidError) Error() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.Source + ": ")
	}
	fmt.Fprintf(&b, "%v, %d problem(s):", ErrInvalid, len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// Unwrap returns [ErrInvalid].
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// Load reads, validates and completes a topology file.
// Errors: those of reading the file, or an [*InvalidError].
func Load(path string) (*Topology, error) {
	b, err := bounded.File(path, maxFileSize)
	if errors.Is(err, bounded.ErrTooLarge) {
		return nil, &InvalidError{Source: path, Problems: []Problem{{Want: fmt.Sprintf("at most %d bytes", maxFileSize)}}}
	}
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t, err := Parse(b)
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
		invalid.Source = path
	}
	if err != nil {
		return nil, err
	}
	// In full, for a topology is copied into replay files, which lie elsewhere.
	if t.PolicyToken != "" && !filepath.IsAbs(t.PolicyToken) {
		if t.PolicyToken, err = filepath.Abs(filepath.Join(filepath.Dir(path), t.PolicyToken)); err != nil {
			return nil, fmt.Errorf("topology: %w", err)
		}
	}
	return t, nil
}

// Parse reads, validates and completes a topology in YAML or JSON.
// Errors: an [*InvalidError].
func Parse(b []byte) (*Topology, error) {
	j, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return nil, &InvalidError{Problems: []Problem{{Want: "valid YAML: " + err.Error()}}}
	}
	if err := protoyaml.Single(b); err != nil {
		return nil, &InvalidError{Problems: []Problem{{Want: err.Error()}}}
	}
	problems := unknownFields(j)
	var t Topology
	if err := json.Unmarshal(j, &t); err != nil {
		problems = append(problems, decodeProblem(err))
		// What has the wrong type is missing in t: to validate it would report more
		// than is wrong.
		return nil, &InvalidError{Problems: problems}
	}
	t.complete()
	problems = append(problems, t.Validate()...)
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	return &t, nil
}

func decodeProblem(err error) Problem {
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		want := e.Type.String()
		switch {
		case strings.HasPrefix(want, "[]"):
			want = "a list"
		case strings.HasPrefix(want, "topology."):
			want = "a mapping"
		}
		return Problem{Path: e.Field, Want: want + " is wanted, found " + e.Value}
	}
	return Problem{Want: "valid YAML: " + err.Error()}
}

// complete fills in the defaults.
func (t *Topology) complete() {
	if t.XDS == "" {
		t.XDS = DefaultXDS
	}
	if t.OTLP == "" {
		t.OTLP = DefaultOTLP
	}
	if t.Has(SidecarTFIProxy) {
		t.Policy = cmp.Or(t.Policy, DefaultPolicy)
		t.PolicyToken = cmp.Or(t.PolicyToken, DefaultPolicyToken)
	}
	for i := range t.Services {
		s := &t.Services[i]
		if s.Protocol == "" {
			s.Protocol = ProtocolHTTP
		}
		for j := range s.Calls {
			if s.Calls[j].Cluster == "" {
				s.Calls[j].Cluster = s.Calls[j].Service
			}
		}
	}
}

// Marshal writes t as a topology file.
func (t *Topology) Marshal() ([]byte, error) {
	b, err := yaml.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return b, nil
}
