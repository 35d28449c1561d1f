package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// jaegerDocument is the JSON of Jaeger's page and its HTTP API.
type jaegerDocument struct {
	Data []jaegerTrace `json:"data"`
}

type jaegerTrace struct {
	TraceID   string                   `json:"traceID"`
	Spans     []jaegerSpan             `json:"spans"`
	Processes map[string]jaegerProcess `json:"processes"`
}

type jaegerSpan struct {
	SpanID     string      `json:"spanID"`
	Operation  string      `json:"operationName"`
	Start      int64       `json:"startTime"`
	ProcessID  string      `json:"processID"`
	Tags       []jaegerTag `json:"tags"`
	References []struct {
		Type   string `json:"refType"`
		SpanID string `json:"spanID"`
	} `json:"references"`
}

type jaegerTag struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

type jaegerProcess struct {
	Service string `json:"serviceName"`
}

// tag returns the first of the named tags as text. Names differ between the
// versions of OpenTelemetry's conventions.
func (s *jaegerSpan) tag(keys ...string) string {
	for _, key := range keys {
		for _, t := range s.Tags {
			if t.Key == key && t.Value != nil {
				return fmt.Sprint(t.Value)
			}
		}
	}
	return ""
}

func (s *jaegerSpan) parent() string {
	for _, r := range s.References {
		if r.Type == "CHILD_OF" || r.Type == "" {
			return r.SpanID
		}
	}
	return ""
}

// Jaeger reads a trace of one client request: the services with their calls,
// and the request itself from the root span. traceID chooses one where the
// document has several; empty takes the first.
// Errors: ErrInput.
func Jaeger(b []byte, traceID string) (*Imported, error) {
	var doc jaegerDocument
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%w: not Jaeger's JSON: %w", ErrInput, plainJSON(err))
	}
	if doc.Data == nil {
		var one jaegerTrace // the page's "Trace JSON (unadjusted)" of some versions
		if err := json.Unmarshal(b, &one); err == nil && len(one.Spans) > 0 {
			doc.Data = []jaegerTrace{one}
		}
	}
	var trace *jaegerTrace
	for i := range doc.Data {
		if traceID == "" || strings.EqualFold(strings.TrimLeft(doc.Data[i].TraceID, "0"), strings.TrimLeft(traceID, "0")) {
			trace = &doc.Data[i]
			break
		}
	}
	switch {
	case len(doc.Data) == 0:
		return nil, fmt.Errorf("%w: the document has no traces: want Jaeger's JSON, {\"data\": [{\"spans\": …}]}", ErrInput)
	case trace == nil:
		return nil, fmt.Errorf("%w: the document has no trace %s", ErrInput, cut(traceID, 64))
	case len(trace.Spans) == 0:
		return nil, fmt.Errorf("%w: the trace has no spans", ErrInput)
	}
	j := newJaegerReader(trace)
	out := &Imported{Topology: j.topology()}
	if len(doc.Data) > 1 && traceID == "" {
		out.note("the document has %d traces: the first one, %s, was read", len(doc.Data), cut(trace.TraceID, 64))
	}
	if err := j.request(out); err != nil {
		return nil, err
	}
	if len(j.stores) > 0 {
		out.note("no sidecar sees calls to %s (no HTTP): they cannot be faulted", strings.Join(slices.Sorted(maps.Keys(j.stores)), ", "))
	}
	out.note("the trace does not tell the services' addresses: put them into the topology (app, inbound, listen) for standalone Envoys; a mesh needs none")
	out.finish()
	return out, nil
}

type jaegerReader struct {
	trace    *jaegerTrace
	byID     map[string]*jaegerSpan
	children map[string][]*jaegerSpan
	// stores are peers that speak neither HTTP nor gRPC.
	stores map[string]bool
}

func newJaegerReader(t *jaegerTrace) *jaegerReader {
	j := &jaegerReader{trace: t, byID: make(map[string]*jaegerSpan), children: make(map[string][]*jaegerSpan), stores: make(map[string]bool)}
	for i := range t.Spans {
		j.byID[t.Spans[i].SpanID] = &t.Spans[i]
	}
	for i := range t.Spans {
		if p := t.Spans[i].parent(); p != "" && j.byID[p] != nil {
			j.children[p] = append(j.children[p], &t.Spans[i])
		}
	}
	return j
}

func (j *jaegerReader) service(s *jaegerSpan) string {
	return serviceName(j.trace.Processes[s.ProcessID].Service)
}

// serviceName makes a name that a topology takes.
func serviceName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, s)
	s = cut63(s)
	if strings.HasPrefix(s, topology.ReservedPrefix) {
		s = "x-" + s
	}
	return s
}

func cut63(s string) string { return s[:min(len(s), 63)] }

// servers are the services that answer somebody. A data base's driver reports
// under the data base's name, but only client spans. Where spans have no kind,
// every service counts.
func (j *jaegerReader) servers() map[string]bool {
	servers := make(map[string]bool)
	for i := range j.trace.Spans {
		s := &j.trace.Spans[i]
		switch s.tag("span.kind") {
		case "client", "producer", "internal":
			if j.byID[s.parent()] == nil {
				servers[j.service(s)] = true // the trace begins there
			}
		default:
			servers[j.service(s)] = true
		}
	}
	return servers
}

// topology finds the edges: a span whose child is another service's, and client
// spans that nobody answers within the trace.
func (j *jaegerReader) topology() *topology.Topology {
	servers := j.servers()
	calls := make(map[string]map[string]bool)
	protocols := make(map[string]string)
	leaves := make(map[string]bool)
	services := make(map[string]bool)
	for i := range j.trace.Spans {
		s := &j.trace.Spans[i]
		name := j.service(s)
		if name == "" {
			continue
		}
		if !servers[name] {
			j.stores[name] = true
			continue
		}
		services[name] = true
		add := func(callee string) {
			if calls[name] == nil {
				calls[name] = make(map[string]bool)
			}
			calls[name][callee] = true
		}
		answered := false
		for _, child := range j.children[s.SpanID] {
			callee := j.service(child)
			if callee == "" || callee == name {
				continue
			}
			answered = true
			if !servers[callee] {
				continue
			}
			add(callee)
			if child.tag("rpc.system") == "grpc" || s.tag("span.kind") == "client" && s.tag("rpc.system") == "grpc" {
				protocols[callee] = topology.ProtocolGRPC
			}
		}
		if answered || s.tag("span.kind") != "client" || len(j.children[s.SpanID]) > 0 {
			continue
		}
		peer := serviceName(s.tag("peer.service", "server.address", "net.peer.name", "db.system"))
		switch {
		case peer == "" || peer == name:
		case s.tag("http.method", "http.request.method", "rpc.system") == "":
			j.stores[peer] = true
		default:
			add(peer)
			leaves[peer] = true
		}
	}
	t := &topology.Topology{}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		delete(leaves, name)
		s := topology.Service{Name: name, Protocol: protocols[name]}
		for _, callee := range slices.Sorted(maps.Keys(calls[name])) {
			s.Calls = append(s.Calls, topology.Call{Service: callee})
		}
		t.Services = append(t.Services, s)
	}
	t.Leaves = slices.Sorted(maps.Keys(leaves))
	for name := range leaves {
		delete(j.stores, name)
	}
	return t
}

// root is the first server span that no other span of the trace caused, else
// the first span of all.
func (j *jaegerReader) root() *jaegerSpan {
	var roots []*jaegerSpan
	for i := range j.trace.Spans {
		s := &j.trace.Spans[i]
		if j.byID[s.parent()] == nil {
			roots = append(roots, s)
		}
	}
	if len(roots) == 0 {
		return &j.trace.Spans[0]
	}
	server := func(s *jaegerSpan) int {
		if s.tag("span.kind") == "server" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(roots, func(a, b *jaegerSpan) int {
		return cmp.Or(cmp.Compare(server(a), server(b)), cmp.Compare(a.Start, b.Start))
	})
	return roots[0]
}

func (j *jaegerReader) request(out *Imported) error {
	root := j.root()
	method := root.tag("http.request.method", "http.method")
	if method == "" {
		if word, _, ok := strings.Cut(root.Operation, " "); ok && slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}, word) {
			method = word
		}
	}
	raw := root.tag("url.full", "http.url")
	if raw == "" {
		raw = root.tag("http.target")
	}
	if raw == "" && root.tag("url.path") != "" {
		raw = root.tag("url.path")
		if q := root.tag("url.query"); q != "" {
			raw += "?" + strings.TrimPrefix(q, "?")
		} else {
			out.note("the trace has no query string: add it to the URL if the request has one")
		}
	}
	if raw == "" {
		raw = root.tag("http.route")
	}
	if method == "" && raw == "" {
		return fmt.Errorf("%w: the root span %q of %s is no HTTP request: name the request by curl, and take only the topology from here",
			ErrInput, cut(root.Operation, 64), cut(j.service(root), 64))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("%w: the root span's URL %q: %w", ErrInput, cut(raw, 100), err)
	}
	if u.Host == "" {
		u.Scheme = cmp.Or(root.tag("url.scheme", "http.scheme"), "http")
		u.Host = root.tag("http.host")
		if u.Host == "" {
			u.Host = root.tag("server.address", "net.host.name")
			if port := root.tag("server.port", "net.host.port"); u.Host != "" && port != "" {
				u.Host = net.JoinHostPort(u.Host, port)
			}
		}
		if u.Host == "" {
			u.Host = "127.0.0.1:8080"
			out.note("the trace does not tell the host: http://%s stands for it", u.Host)
		}
		if !strings.HasPrefix(u.Path, "/") {
			u.Path = "/" + u.Path
		}
	}
	out.Request = &campaignv1.HttpRequest{Url: u.String()}
	if method != "" && method != "GET" {
		out.Request.Method = method
		out.note("the trace does not have the request's headers and body: put them in")
	}
	return nil
}
