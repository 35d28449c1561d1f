package topology

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sequencefi/sequencefi/proto/valid"
)

// ReservedPrefix begins the names of the Envoy clusters that are ours.
const ReservedPrefix = "sequencefi_"

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)
	headerForm = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$")
	// A variable is a whole segment: `{name}`, or `{name...}` at the end.
	variableForm = regexp.MustCompile(`^\{[A-Za-z_][A-Za-z0-9_]*(\.\.\.)?\}$`)
)

// problems collects what is wrong.
type problems []Problem

func (p *problems) add(path, want string, args ...any) {
	*p = append(*p, Problem{Path: path, Want: fmt.Sprintf(want, args...)})
}

// Validate returns all problems of t, in the order of its fields; none: t is valid.
func (t *Topology) Validate() []Problem {
	var p problems
	if len(t.Services) == 0 {
		p.add("services", "at least one service with a sidecar")
	}
	names := map[string]string{}
	for i, s := range t.Services {
		p.name(names, s.Name, fmt.Sprintf("services[%d].name", i))
	}
	for i, leaf := range t.Leaves {
		p.name(names, leaf, fmt.Sprintf("leaves[%d]", i))
	}
	inbounds := map[string]string{}
	for i := range t.Services {
		path := fmt.Sprintf("services[%d]", i)
		t.validateService(&p, &t.Services[i], path)
		p.inbound(inbounds, t.Services[i].Inbound, path+".inbound")
	}
	shapes := map[string]string{}
	for i, template := range t.Templates {
		p.template(shapes, template, fmt.Sprintf("templates[%d]", i))
	}
	t.validatePropagation(&p)
	for i, path := range t.ExemptPaths {
		if !strings.HasPrefix(path, "/") {
			p.add(fmt.Sprintf("exemptPaths[%d]", i), "a path prefix that begins with /, not %q", path)
		}
		if path == "/" {
			p.add(fmt.Sprintf("exemptPaths[%d]", i), "a longer prefix: / exempts every request, and nothing could be tried")
		}
	}
	t.validatePlane(&p)
	return p
}

// ordinaryHeaders are those that a request has for other purposes; a trace id in their place
// would break it.
var ordinaryHeaders = []string{
	"accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie",
	"expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// validatePropagation checks what requests are marked by.
func (t *Topology) validatePropagation(p *problems) {
	for i, format := range t.Propagation {
		at := fmt.Sprintf("propagation[%d]", i)
		switch first := slices.Index(t.Propagation, format); {
		case !slices.Contains(Formats(), format):
			p.add(at, "one of %s, not %q", strings.Join(Formats(), ", "), format)
		case first < i:
			p.add(at, "each format once: propagation[%d] is %s too", first, format)
		}
	}
	switch h := t.TraceHeader; {
	case h == "":
	case !headerForm.MatchString(h):
		p.add("traceHeader", "a header name in lower case, not %q", h)
	case strings.HasPrefix(h, "x-fic-"):
		p.add("traceHeader", "a header of the application's; those that begin with x-fic- are SequenceFI's")
	case valid.TraceHeader(h):
		p.add("traceHeader", "nothing: %s is understood without, and its format is one of propagation's", h)
	case slices.Contains(ordinaryHeaders, h):
		p.add("traceHeader", "a header for the trace id alone: requests need %s for something else", h)
	}
}

// validatePlane checks where the control plane listens. Module and policy are served over
// HTTP both, and may share an address.
func (t *Topology) validatePlane(p *problems) {
	used := map[string]string{}
	p.listen(used, "xds", t.XDS)
	p.listen(used, "otlp", t.OTLP)
	p.listen(maps.Clone(used), "module", t.Module)
	p.listen(used, "policy", t.Policy)
}

func (p *problems) name(seen map[string]string, name, path string) {
	if !nameForm.MatchString(name) {
		p.add(path, "1 to 63 characters of [A-Za-z0-9._-], not %q", name)
		return
	}
	if strings.HasPrefix(name, ReservedPrefix) {
		p.add(path, "a name that does not begin with %s", ReservedPrefix)
	}
	if first, ok := seen[name]; ok {
		p.add(path, "a name of its own: %s has the name %q too", first, name)
		return
	}
	seen[name] = path
}

func (t *Topology) validateService(p *problems, s *Service, path string) {
	p.protocol(path+".protocol", s.Protocol)
	if all := []string{"", SidecarEnvoy, SidecarTFIProxy}; !slices.Contains(all, s.Sidecar) {
		p.add(path+".sidecar", "envoy or tfiproxy, not %q", s.Sidecar)
	}
	if (s.App == "") != (s.Inbound == "") {
		p.add(path, "both app and inbound, or neither: the sidecar listens at one for the other")
	}
	// Hosts of different services may be different machines: addresses can only
	// clash within one service. Where others reach it, each is its own ([problems.inbound]).
	used := map[string]string{}
	p.listen(used, path+".app", s.App)
	p.listen(used, path+".inbound", s.Inbound)
	p.listen(used, path+".admin", s.Admin)
	clusters := map[string]string{}
	for i, c := range s.Calls {
		at := fmt.Sprintf("%s.calls[%d]", path, i)
		p.listen(used, at+".listen", c.Listen)
		t.validateCallee(p, c, at)
		cluster := c.Cluster
		if cluster == "" {
			cluster = c.Service
		}
		if strings.HasPrefix(cluster, ReservedPrefix) {
			p.add(at+".cluster", "a name that does not begin with %s", ReservedPrefix)
		}
		if first, ok := clusters[cluster]; ok && cluster != "" {
			p.add(at+".cluster", "a cluster of its own: %s has %q too", first, cluster)
		}
		clusters[cluster] = at
	}
}

func (t *Topology) validateCallee(p *problems, c Call, at string) {
	p.address(at+".address", c.Address)
	p.protocol(at+".protocol", c.Protocol)
	callee, isService := t.Service(c.Service)
	switch {
	case isService:
		if c.Address != "" {
			p.add(at+".address", "nothing: a service with a sidecar is reached at its own inbound")
		}
		if c.Protocol != "" {
			p.add(at+".protocol", "nothing: the service %q says its own", c.Service)
		}
		if c.Listen != "" && callee.Inbound == "" {
			p.add(at+".listen", "%q needs an inbound address to be called through this one", c.Service)
		}
	case t.IsLeaf(c.Service):
		if c.Listen != "" && c.Address == "" {
			p.add(at+".address", "host:port of the leaf %q, since listen is given", c.Service)
		}
	default:
		p.add(at+".service", "one of services or leaves, not %q", c.Service)
	}
}

func (p *problems) protocol(path, protocol string) {
	all := []string{"", ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC}
	if !slices.Contains(all, protocol) {
		p.add(path, "http, http2 or grpc, not %q", protocol)
	}
}

// listen checks an address and that nothing else of the same service listens there.
func (p *problems) listen(used map[string]string, path, address string) {
	if !p.address(path, address) {
		return
	}
	host, port, _ := net.SplitHostPort(address)
	for other, at := range used {
		otherHost, otherPort, _ := net.SplitHostPort(other)
		if port == otherPort && (host == otherHost || isWildcard(host) || isWildcard(otherHost)) {
			p.add(path, "an address of its own: %s is %s", at, other)
			return
		}
	}
	used[address] = path
}

// inbound checks that callers who go to an address find one service there. Of every
// address of a machine, there is one on each.
func (p *problems) inbound(seen map[string]string, address, path string) {
	host, _, err := net.SplitHostPort(address)
	if err != nil || isWildcard(host) {
		return
	}
	if first, ok := seen[address]; ok {
		p.add(path, "an address of its own: %s is %s too", first, address)
		return
	}
	seen[address] = path
}

func isWildcard(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

// address checks host:port and tells whether there is one that can be used.
func (p *problems) address(path, address string) bool {
	if address == "" {
		return false
	}
	host, port, err := net.SplitHostPort(address)
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil || n == 0 || host == "" || strings.ContainsAny(host, "/@ ") {
		p.add(path, "host:port with a port from 1 to 65535, not %q", address)
		return false
	}
	return true
}

func (p *problems) template(shapes map[string]string, template, path string) {
	if !strings.HasPrefix(template, "/") || strings.ContainsAny(template, "?# ") {
		p.add(path, "a path that begins with / and has no query, not %q", template)
		return
	}
	segments := strings.Split(template[1:], "/")
	names := map[string]bool{}
	for i, s := range segments {
		if !strings.ContainsAny(s, "{}") {
			continue
		}
		m := variableForm.FindStringSubmatch(s)
		if m == nil {
			p.add(path, "{name} as a whole segment, or {name...} as the last one, not %q", s)
			return
		}
		if m[1] != "" && i != len(segments)-1 {
			p.add(path, "%s only as the last segment", s)
		}
		name := strings.Trim(s, "{}.")
		if names[name] {
			p.add(path, "each variable once: {%s} is there twice", name)
		}
		names[name] = true
		segments[i] = "{" + m[1] + "}"
	}
	shape := strings.Join(segments, "/")
	if first, ok := shapes[shape]; ok {
		p.add(path, "another path: %s matches the same ones", first)
		return
	}
	shapes[shape] = path
}
