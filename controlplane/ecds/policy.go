package ecds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// bodyAge is how long a built body serves further sidecars of the service: one
// push to many is built once. Lifetimes are late by no more than that.
const bodyAge = 100 * time.Millisecond

// keyMemory is how long an activation's deadline is remembered; no activation
// lives longer than an hour.
const keyMemory = 2 * time.Hour

// entry is the current policy of one service.
type entry struct {
	version string
	// policy has its version set and is never changed.
	policy *tfiv1.Policy
	bodies map[form]body
}

// body is a resource as built at a moment.
type body struct {
	resource *anypb.Any // a TypedExtensionConfig or, natively, the policy; never changed
	built    time.Time
}

// policies holds what each service is told. It is not safe for concurrent use.
type policies struct {
	module  gate.Module
	entries map[string]*entry
	// deadlines of all activations ever applied, for keyMemory: a key's lifetime
	// counts from its first Apply, whichever service that was for.
	deadlines map[string]time.Time
	last      int64 // the last version, in microseconds
}

// ErrService says that a policy was applied under another service's name.
var ErrService = errors.New("policy of another service")

// apply takes the policies over, or none of them, and returns the services that
// changed with the version that stands for all applied so far.
func (p *policies) apply(set map[string]*tfiv1.Policy, instances func(string) int, now time.Time) (changed []string, version string, err error) {
	fresh := make(map[string]*tfiv1.Policy, len(set))
	var errs []error
	for _, service := range slices.Sorted(maps.Keys(set)) {
		policy := proto.CloneOf(set[service])
		if policy == nil {
			policy = &tfiv1.Policy{}
		}
		if policy.Service == "" {
			policy.Service = service
		}
		if policy.Service != service {
			errs = append(errs, fmt.Errorf("%w: applied to %q, names %q", ErrService, service, policy.GetService()))
		}
		policy.Version = ""
		if e := p.entries[service]; e != nil && proto.Equal(unversioned(e.policy), policy) {
			continue
		}
		policy.Version = p.nextVersion(now)
		if err := valid.Error(problems(policy, instances)); err != nil {
			errs = append(errs, fmt.Errorf("policy of %q: %w", service, err))
		}
		fresh[service] = policy
	}
	if err := errors.Join(errs...); err != nil {
		return nil, "", err
	}
	p.forget(now)
	if len(fresh) > 0 {
		p.last = p.next(now)
	}
	version = formatVersion(p.last)
	for service, policy := range fresh {
		for _, a := range policy.GetActivations() {
			if _, known := p.deadlines[string(a.GetKey())]; !known {
				p.deadlines[string(a.GetKey())] = now.Add(a.GetRemaining().AsDuration())
			}
		}
		p.entries[service] = &entry{version: version, policy: policy, bodies: map[form]body{}}
		changed = append(changed, service)
	}
	return changed, version, nil
}

// problems returns what is wrong with a policy for a fleet with so many
// instances of each service.
func problems(policy *tfiv1.Policy, instances func(string) int) []valid.Problem {
	all := valid.Policy(policy)
	for i, a := range policy.GetActivations() {
		for _, p := range valid.Under(fmt.Sprintf("activations[%d]", i), valid.ActivationIn(a, instances)) {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// forget drops the deadlines of keys that can no longer come back.
func (p *policies) forget(now time.Time) {
	maps.DeleteFunc(p.deadlines, func(_ string, at time.Time) bool { return now.Sub(at) > keyMemory })
}

// remove forgets the services' policies and returns those that had one.
func (p *policies) remove(services []string) (removed []string) {
	for _, service := range services {
		if p.entries[service] != nil {
			delete(p.entries, service)
			removed = append(removed, service)
		}
	}
	return removed
}

func (p *policies) next(now time.Time) int64 { return max(p.last+1, now.UnixMicro()) }

func (p *policies) nextVersion(now time.Time) string { return formatVersion(p.next(now)) }

// formatVersion makes versions that sort as strings and stay unique when the
// plane starts again: base 36 of the microseconds since 1970, of 11 digits.
func formatVersion(micros int64) string {
	if micros == 0 {
		return ""
	}
	s := strconv.FormatInt(micros, 36)
	return "00000000000"[min(len(s), 11):] + s
}

// body returns the resource of e for a form, with no more of each activation's
// lifetime than is left now, and none that has expired.
func (p *policies) body(e *entry, f form, now time.Time) (body, error) {
	if b, ok := e.bodies[f]; ok && now.Sub(b.built) < bodyAge {
		return b, nil
	}
	resource, err := p.resource(p.alive(e.policy, now), f)
	if err != nil {
		return body{}, err
	}
	b := body{resource: resource, built: now}
	e.bodies[f] = b
	return b, nil
}

// resource returns a policy in a form; formNative's value is the policy itself.
func (p *policies) resource(policy *tfiv1.Policy, f form) (*anypb.Any, error) {
	if f == formNative {
		return anypb.New(policy)
	}
	extension, err := gate.Extension(f.plugin(p.module), policy)
	if err != nil {
		return nil, err
	}
	return wrap(extension)
}

// alive returns policy as it is to be sent now. It shares parts with policy.
func (p *policies) alive(policy *tfiv1.Policy, now time.Time) *tfiv1.Policy {
	sent := shallow(policy)
	sent.Activations, sent.EdgeRules = nil, nil
	for _, a := range policy.GetActivations() {
		left := p.deadlines[string(a.GetKey())].Sub(now)
		if left <= 0 {
			continue
		}
		sent.Activations = append(sent.Activations, &tfiv1.Activation{
			Key: a.GetKey(), Tfics: a.GetTfics(), Scope: a.GetScope(), Services: a.GetServices(),
			Remaining: durationpb.New(min(left, a.GetRemaining().AsDuration())),
		})
	}
	for _, r := range policy.GetEdgeRules() {
		if slices.ContainsFunc(sent.GetActivations(), func(a *tfiv1.Activation) bool { return string(a.GetKey()) == string(r.GetKey()) }) {
			sent.EdgeRules = append(sent.EdgeRules, r)
		}
	}
	return sent
}

func unversioned(policy *tfiv1.Policy) *tfiv1.Policy {
	p := shallow(policy)
	p.Version = ""
	return p
}

// shallow copies a policy's fields, whatever fields it has.
func shallow(policy *tfiv1.Policy) *tfiv1.Policy {
	p := &tfiv1.Policy{}
	policy.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		p.ProtoReflect().Set(fd, v)
		return true
	})
	return p
}

// wrap makes the ECDS resource of an extension.
func wrap(extension *anypb.Any) (*anypb.Any, error) {
	return anypb.New(&corev3.TypedExtensionConfig{Name: gate.Name, TypedConfig: extension})
}
