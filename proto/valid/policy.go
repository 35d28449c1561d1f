package valid

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Bounds of activations (proto: sequencefi.tfi.v1.Activation).
const (
	KeyBytes       = 7
	MaxPredicates  = 64
	MaxTFICs       = 64
	MaxRemaining   = time.Hour
	maxServices    = 4096
	keyPrefixBytes = 6

	// Unlimited is the max_injections from which on nobody minds how often a TFIC
	// fires: static injection is such.
	Unlimited = 1 << 20
)

// StaticConfiguration returns the problems of a σ.
func StaticConfiguration(m *tfiv1.StaticConfiguration) []Problem {
	var c checker
	c.target("", m)
	return c.problems
}

// Tfic returns the problems of a TFIC.
func Tfic(m *tfiv1.Tfic) []Problem {
	var c checker
	c.tfic("", m)
	return c.problems
}

// Activation returns the problems of an activation in a mesh where every
// service runs as one instance. [ActivationIn] judges it for a known fleet.
func Activation(m *tfiv1.Activation) []Problem {
	return ActivationIn(m, nil)
}

// ActivationIn returns the problems of an activation where instances tells how
// many instances run of a service; nil means one of each. Beyond what
// [Activation] finds, it refuses a TFIC that several instances could fire at
// the same time, and a set whose evidence could outgrow its header.
func ActivationIn(m *tfiv1.Activation, instances func(service string) int) []Problem {
	var c checker
	c.activation("", m, instances)
	return c.problems
}

// Policy returns the problems of a policy.
func Policy(m *tfiv1.Policy) []Problem {
	var c checker
	c.policy("", m)
	return c.problems
}

func (c *checker) target(path string, m *tfiv1.StaticConfiguration) {
	c.service(field(path, "caller"), m.GetCaller())
	c.namedService(field(path, "callee"), m.GetCallee())
	c.api(field(path, "api"), m.GetApi())
	c.phase(field(path, "phase"), m.GetPhase())
	if m.GetEnforceK() && m.GetK() == 0 {
		c.want(field(path, "k"), "must be at least 1 where enforceK is true")
	}
	c.placement(field(path, "placement"), m.GetPlacement())
	if m.GetCaller() == "" && m.GetPlacement() != tfiv1.Placement_PLACEMENT_CALLEE {
		c.want(field(path, "placement"), "must be PLACEMENT_CALLEE where caller is empty: a caller outside the mesh has no sidecar")
	}
	c.outcome(path, "when", "whenStatus", m.GetApi(), m.GetPhase(), m.GetWhen(), m.GetWhenStatus())
	c.identities(field(path, "identities"), m.GetIdentities())
}

func (c *checker) placement(path string, p tfiv1.Placement) {
	if _, ok := tfiv1.Placement_name[int32(p)]; !ok {
		c.want(path, "must be PLACEMENT_CALLER or PLACEMENT_CALLEE (got %d)", p)
	}
}

func (c *checker) tfic(path string, m *tfiv1.Tfic) {
	c.id(field(path, "id"), m.GetId())
	if m.GetTarget() == nil {
		c.want(field(path, "target"), "must say where the fault is made")
	} else {
		c.target(field(path, "target"), m.GetTarget())
	}
	if m.GetGuard() != nil {
		c.guard(field(path, "guard"), m.GetGuard())
	}
	if m.GetFault() == nil {
		c.want(field(path, "fault"), "must say what is done to the message")
	} else {
		c.fault(field(path, "fault"), m.GetFault())
	}
	if _, ok := tfiv1.AnswerKind_name[int32(m.GetAnswerKind())]; !ok {
		c.want(field(path, "answerKind"), "must be ANSWER_KIND_UNARY or ANSWER_KIND_STREAMING (got %d)", m.GetAnswerKind())
	}
}

func (c *checker) key(path string, key []byte) {
	if len(key) != KeyBytes {
		c.want(path, "must be %d random bytes (got %d)", KeyBytes, len(key))
		return
	}
	for _, b := range key {
		if b != 0 {
			return
		}
	}
	c.want(path, "must be random (got zeros)")
}

func (c *checker) activation(path string, m *tfiv1.Activation, instances func(string) int) {
	c.key(field(path, "key"), m.GetKey())
	if _, ok := tfiv1.Scope_name[int32(m.GetScope())]; !ok {
		c.want(field(path, "scope"), "must be SCOPE_TRIAL or SCOPE_TRACE (got %d)", m.GetScope())
	}
	c.duration(field(path, "remaining"), m.GetRemaining(), time.Millisecond, MaxRemaining)

	services := c.services(field(path, "services"), m.GetServices())
	at := field(path, "tfics")
	c.tfics(at, m.GetTfics())
	for i, t := range m.GetTfics() {
		c.known(item(at, i), t, services)
		c.alone(item(at, i), t, instances)
	}
	c.budget(at, m, instances)
}

// tfics checks those of one activation, or of what will become one.
func (c *checker) tfics(path string, list []*tfiv1.Tfic) {
	if n := len(list); n > MaxTFICs {
		c.want(path, "must be at most %d (got %d)", MaxTFICs, n)
	}
	ids := make(map[string]int)
	for i, t := range list {
		c.tfic(item(path, i), t)
		if first, ok := ids[t.GetId()]; ok && t.GetId() != "" {
			c.want(field(item(path, i), "id"), "must be unique in its activation (tfics[%d] has it too)", first)
		} else {
			ids[t.GetId()] = i
		}
	}
}

// someTFICs is tfics where there must be one.
func (c *checker) someTFICs(path string, list []*tfiv1.Tfic) {
	if len(list) == 0 {
		c.want(path, "must have at least one")
	}
	c.tfics(path, list)
}

// services checks the activation's service table and returns it as a set.
func (c *checker) services(path string, list []string) map[string]bool {
	if len(list) > maxServices {
		c.want(path, "must be at most %d (got %d)", maxServices, len(list))
	}
	set := make(map[string]bool, len(list))
	for i, s := range list {
		c.namedService(item(path, i), s)
		if set[s] {
			c.want(item(path, i), "must be unique (%q is there already)", cut(s, 64))
		}
		set[s] = true
	}
	return set
}

// known checks that those who act on a TFIC are in the activation's table. A
// table that is left out tells nothing.
func (c *checker) known(path string, t *tfiv1.Tfic, services map[string]bool) {
	if len(services) == 0 {
		return
	}
	if s, at := injector(t.GetTarget()); s != "" && !services[s] {
		c.want(field(path, "target."+at), "must be one of the activation's services, since its sidecar makes the fault (got %q)", cut(s, 64))
	}
	missing := make(map[string]bool)
	for a := range atoms(t.GetGuard()) {
		s := a.GetEvent().GetOp().GetObserver()
		if s != "" && !services[s] && !missing[s] {
			missing[s] = true
			c.want(field(path, "guard"), "every observer must be one of the activation's services (got %q)", cut(s, 64))
		}
	}
}

// alone refuses a TFIC that two instances could fire before either knows of the
// other: nothing but a rank or an identity keeps them apart. One that may fire
// without limit, as static injection does, cannot fire too often.
func (c *checker) alone(path string, t *tfiv1.Tfic, instances func(string) int) {
	if instances == nil || t.GetMaxInjections() >= Unlimited {
		return
	}
	target := t.GetTarget()
	s, _ := injector(target)
	n := 0
	if s != "" {
		n = instances(s)
	}
	if n > 1 && !target.GetEnforceK() && len(target.GetIdentities()) == 0 {
		c.want(field(path, "target"), "needs enforceK with k, or an identity: %d instances of %q could fire at the same time", n, cut(s, 64))
	}
}

// injector returns the service whose sidecar makes the fault, and the field
// that names it.
func injector(m *tfiv1.StaticConfiguration) (service, name string) {
	if m.GetPlacement() == tfiv1.Placement_PLACEMENT_CALLEE {
		return m.GetCallee(), "callee"
	}
	return m.GetCaller(), "caller"
}

func (c *checker) policy(path string, m *tfiv1.Policy) {
	c.namedService(field(path, "service"), m.GetService())
	if v := m.GetVersion(); len(v) > 128 || !printable(v) {
		c.want(field(path, "version"), "must be at most 128 printable ASCII characters without spaces")
	}
	c.peers(field(path, "peers"), m.GetPeers())
	c.templates(field(path, "templates"), m.GetTemplates())
	if h := m.GetTraceHeader(); h != "" {
		c.headerName(field(path, "traceHeader"), h)
		if strings.HasPrefix(h, "x-fic-") {
			c.want(field(path, "traceHeader"), "must not be one of SequenceFI's own headers (got %q)", cut(h, 64))
		}
	}
	for i, f := range m.GetTraceFormats() {
		at := item(field(path, "traceFormats"), i)
		switch _, known := tfiv1.TraceFormat_name[int32(f)]; {
		case !known || f == tfiv1.TraceFormat_TRACE_FORMAT_UNSPECIFIED:
			c.want(at, "must be a format (TRACE_FORMAT_W3C, ...), not %v", f)
		case slices.Index(m.GetTraceFormats(), f) < i:
			c.want(at, "must not be there twice (%v)", f)
		}
	}
	for i, p := range m.GetExemptPaths() {
		if !strings.HasPrefix(p, "/") || !printable(p) || len(p) > maxAPI || p == "/" {
			c.want(item(field(path, "exemptPaths"), i), "must be a path prefix like \"/healthz\", and not \"/\" alone, which would exempt everything (got %q)", cut(p, 64))
		}
	}
	c.reporting(field(path, "reporting"), m.GetReporting())

	at := field(path, "activations")
	keys := make(map[string]int)
	for i, a := range m.GetActivations() {
		c.activation(item(at, i), a, nil)
		if len(a.GetKey()) != KeyBytes {
			continue
		}
		// A 64-bit trace id carries only this much of the key.
		prefix := string(a.GetKey()[:keyPrefixBytes])
		if first, ok := keys[prefix]; ok {
			c.want(field(item(at, i), "key"), "its first %d bytes must be unique (activations[%d] has %s too)",
				keyPrefixBytes, first, hex.EncodeToString([]byte(prefix)))
			continue
		}
		keys[prefix] = i
	}
	for i, r := range m.GetEdgeRules() {
		c.edgeRule(item(field(path, "edgeRules"), i), r, m.GetActivations())
	}
}

func (c *checker) peers(path string, list []*tfiv1.Peer) {
	services := make(map[string]int)
	clusters := make(map[string]int)
	for i, p := range list {
		at := item(path, i)
		c.namedService(field(at, "service"), p.GetService())
		if first, ok := services[p.GetService()]; ok {
			c.want(field(at, "service"), "must be unique (peers[%d] has it too)", first)
		} else {
			services[p.GetService()] = i
		}
		for j, cluster := range p.GetClusters() {
			at := item(field(at, "clusters"), j)
			if cluster == "" {
				c.want(at, "must name a cluster of the proxy")
				continue
			}
			c.service(at, cluster)
			if first, ok := clusters[cluster]; ok {
				c.want(at, "must lead to one service only (%q is in peers[%d] already)", cut(cluster, 64), first)
			} else {
				clusters[cluster] = i
			}
		}
	}
}

func (c *checker) templates(path string, list []*tfiv1.ApiTemplate) {
	seen := make(map[string]int)
	for i, t := range list {
		at := field(item(path, i), "path")
		c.template(at, t.GetPath())
		shape := templateShape(t.GetPath())
		if first, ok := seen[shape]; ok {
			c.want(at, "must differ from templates[%d], which matches the same paths", first)
		} else {
			seen[shape] = i
		}
	}
}

// templateShape drops the variables' names.
func templateShape(t string) string {
	segments := strings.Split(t, "/")
	for i, s := range segments {
		switch {
		case strings.HasPrefix(s, "{") && strings.HasSuffix(s, "...}"):
			segments[i] = "{...}"
		case strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}"):
			segments[i] = "{}"
		}
	}
	return strings.Join(segments, "/")
}

func (c *checker) reporting(path string, m *tfiv1.Reporting) {
	c.service(field(path, "cluster"), m.GetCluster())
	if p := m.GetPath(); p != "" && (p[0] != '/' || !printable(p)) {
		c.want(field(path, "path"), "must begin with \"/\" (got %q)", cut(p, 64))
	}
	if !printable(m.GetAuthority()) {
		c.want(field(path, "authority"), "must be a host, or host:port (got %q)", cut(m.GetAuthority(), 64))
	}
}

func (c *checker) edgeRule(path string, m *tfiv1.EdgeRule, activations []*tfiv1.Activation) {
	at := field(path, "key")
	c.key(at, m.GetKey())
	if len(m.GetKey()) == KeyBytes {
		found := false
		for _, a := range activations {
			found = found || string(a.GetKey()) == string(m.GetKey())
		}
		if !found {
			c.want(at, "must be the key of one of the policy's activations")
		}
	}
	if len(m.GetIdentities()) == 0 {
		c.want(field(path, "identities"), "must have at least one: without any the rule would take every request")
	}
	c.identities(field(path, "identities"), m.GetIdentities())
}
