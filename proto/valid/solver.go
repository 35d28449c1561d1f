package valid

import (
	"encoding/hex"
	"maps"
	"slices"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
)

// Bounds of the solver's requests (proto: sequencefi.solver.v1).
const (
	MaxFaults     = 8
	MaxTracesData = 64 << 20
)

// StartSessionRequest returns the problems of a request to start a search.
func StartSessionRequest(m *solverv1.StartSessionRequest) []Problem {
	var c checker
	c.faultModel("faults", m.GetFaults())
	if n := m.GetMaxFaults(); n > MaxFaults {
		c.want("maxFaults", "must be at most %d (got %d)", MaxFaults, n)
	}
	c.services("leaves", m.GetLeaves())
	return c.problems
}

// AddTracesRequest returns the problems of a request that adds traces.
func AddTracesRequest(m *solverv1.AddTracesRequest) []Problem {
	var c checker
	c.id("session", m.GetSession())
	if len(m.GetTrials()) == 0 {
		c.want("trials", "must have at least one")
	}
	for i, t := range m.GetTrials() {
		c.recorded(item("trials", i), t)
	}
	return c.problems
}

// AddResultsRequest returns the problems of a request that adds judged trials.
func AddResultsRequest(m *solverv1.AddResultsRequest) []Problem {
	var c checker
	c.id("session", m.GetSession())
	if len(m.GetResults()) == 0 {
		c.want("results", "must have at least one")
	}
	for i, r := range m.GetResults() {
		at := item("results", i)
		if n := r.GetCandidate(); n == "" || len(n) > 256 {
			c.want(field(at, "candidate"), "must be the id of a candidate")
		}
		_, ok := campaignv1.Verdict_name[int32(r.GetVerdict())]
		if !ok || r.GetVerdict() == campaignv1.Verdict_VERDICT_UNSPECIFIED {
			c.want(field(at, "verdict"), "must be what the trial came to (got %v)", r.GetVerdict())
		}
		if n := len(r.GetSignature()); n > 256 {
			c.want(field(at, "signature"), "must be at most 256 characters (got %d)", n)
		}
		for j, id := range r.GetFired() {
			c.id(item(field(at, "fired"), j), id)
		}
		if r.GetRecorded() != nil {
			c.recorded(field(at, "recorded"), r.GetRecorded())
		}
	}
	return c.problems
}

// NextCandidatesRequest returns the problems of a request for candidates.
func NextCandidatesRequest(m *solverv1.NextCandidatesRequest) []Problem {
	return session(m.GetSession())
}

// GetStatisticsRequest returns the problems of a request for statistics.
func GetStatisticsRequest(m *solverv1.GetStatisticsRequest) []Problem {
	return session(m.GetSession())
}

// EndSessionRequest returns the problems of a request that frees a session.
func EndSessionRequest(m *solverv1.EndSessionRequest) []Problem {
	return session(m.GetSession())
}

// Candidate returns the problems of a candidate.
func Candidate(m *solverv1.Candidate) []Problem {
	var c checker
	if n := m.GetId(); n == "" || len(n) > 256 {
		c.want("id", "must be 1 to 256 characters (got %d)", len(n))
	}
	c.someTFICs("tfics", m.GetTfics())
	return c.problems
}

func session(id string) []Problem {
	var c checker
	c.id("session", id)
	return c.problems
}

func (c *checker) recorded(path string, m *solverv1.RecordedTrial) {
	if id := m.GetId(); id != "" {
		if b, err := hex.DecodeString(id); err != nil || len(b) != KeyBytes {
			c.want(field(path, "id"), "must be the activation key as %d hex digits, or empty (got %q)", 2*KeyBytes, cut(id, 64))
		}
	}
	if n := len(m.GetTracesData()); n > MaxTracesData {
		c.want(field(path, "tracesData"), "must be at most %d bytes (got %d)", MaxTracesData, n)
	}
}

// sortedKeys makes the order of problems the same every time.
func sortedKeys(m map[string]string) []string {
	return slices.Sorted(maps.Keys(m))
}
