package tfi

import (
	"strings"
	"time"
)

// Policy is what a service's sidecars are told, decoded and indexed
// (proto: Policy). It is immutable, its parts too; engines share it.
type Policy struct {
	Service     string
	Version     string
	TraceHeader string
	Reporting   Reporting
	Activations []*Activation

	peers     map[string]peer // by cluster
	templates []template
	edges     []edge
	exempt    []string
	byPrefix  activationTable
	limits    Limits
}

// Reporting says where records are sent. Defaults are filled in.
type Reporting struct {
	// Cluster is empty if nothing is reported.
	Cluster, Path, Authority string
}

// Activation switches its TFICs on for one trial (proto: Activation).
type Activation struct {
	Key       Key
	TFICs     []*TFIC
	PerTrace  bool // scope trace
	Remaining time.Duration
	Services  []string
	// Predicates are the distinct ones of all guards, in order of first appearance.
	// Their positions are the evidence's indexes; one more for each TFIC follows.
	Predicates []Predicate

	// index in the policy, and self that of the policy's service in Services + 1.
	index, self int
	// ops are those of the policy's service, by role.
	ops [RoleServer + 1][]localOp
}

// Width is the number of the evidence's indexes.
func (a *Activation) Width() int { return len(a.Predicates) + len(a.TFICs) }

// FiredIndex is the evidence's index of how often TFIC i has fired.
func (a *Activation) FiredIndex(i int) int { return len(a.Predicates) + i }

type peer struct {
	service string
	leaf    bool
}

type edge struct {
	act        *Activation // nil: not here, or not any more
	identities []Identity
}

// Activation returns the activation of k, or nil.
func (p *Policy) Activation(k Key) *Activation {
	return p.lookup(ref{key: k, whole: true})
}

// owns reports whether a is p's, and not that of an earlier policy with the same key.
func (p *Policy) owns(a *Activation) bool {
	return a != nil && a.index < len(p.Activations) && p.Activations[a.index] == a
}

// Has reports whether the policy has an activation of k, expired or not.
func (p *Policy) Has(k Key) bool { return p.Activation(k) != nil }

// exempts reports whether requests of this path belong to no trial, whatever they carry.
func (p *Policy) exempts(path string) bool {
	for _, prefix := range p.exempt {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

func (p *Policy) lookup(r ref) *Activation {
	a := p.byPrefix.find(r.key.prefix())
	if a == nil || (r.whole && a.Key != r.key) {
		return nil
	}
	return a
}

// evidenceBound is the largest size in bytes of the binary evidence of a, with
// one instance a service and counts below 128: each index is counted at one service
// only, and a service that counts nothing has no row.
func (a *Activation) evidenceBound() int {
	const head = 1 + 6 + 5 + 2 + 2
	const row = 6 + 1
	counting := make(map[string]struct{})
	for i := range a.Predicates {
		counting[a.Predicates[i].Op.Observer] = struct{}{}
	}
	for _, t := range a.TFICs {
		counting[t.Target.injector()] = struct{}{}
	}
	return head + row*len(counting) + 2*a.Width()
}
