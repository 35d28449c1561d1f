package trace

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// spanKey names a span inside a group of traces.
type spanKey struct{ trace, span string }

// appSpan is an application's span of one end of a call.
type appSpan struct {
	located
	key, parent spanKey
	service     string
	process     string
	client      bool
	peer        *appSpan
}

// fromApplications makes a trial of the client and server spans that
// applications reported themselves. What happened inside a process is ordered by
// that process's clock, and a message is taken to be delivered where a server
// span is the child of a client span.
func fromApplications(id string, spans []located) (*Trial, error) {
	t := &Trial{ID: id, Assumed: true, Ended: map[string]uint64{}}
	all := map[spanKey]*tracev1.Span{}
	ends := map[spanKey]*appSpan{}
	ids := map[string]bool{}
	for _, l := range spans {
		key := spanKey{hex.EncodeToString(l.span.GetTraceId()), hex.EncodeToString(l.span.GetSpanId())}
		if len(l.span.GetTraceId()) != 16 || len(l.span.GetSpanId()) != 8 {
			return nil, fmt.Errorf("%w: span %s: traceId and spanId: want 16 and 8 bytes", ErrSpan, spanRef(l.span))
		}
		if l.span.GetEndTimeUnixNano() < l.span.GetStartTimeUnixNano() {
			return nil, fmt.Errorf("%w: span %s: endTimeUnixNano: want no less than startTimeUnixNano", ErrSpan, spanRef(l.span))
		}
		ids[key.trace] = true
		if all[key] != nil {
			continue // exported twice
		}
		all[key] = l.span
		client := l.span.GetKind() == tracev1.Span_SPAN_KIND_CLIENT
		if !client && l.span.GetKind() != tracev1.Span_SPAN_KIND_SERVER {
			continue
		}
		ends[key] = &appSpan{
			located: l, key: key, client: client,
			parent:  spanKey{key.trace, hex.EncodeToString(l.span.GetParentSpanId())},
			service: resourceText(l.resource, "service.name"),
			process: process(l.resource),
		}
	}
	t.TraceIDs = sortedKeys(ids)
	list := pairEnds(ends)
	obs := t.observe(list)
	return t, t.assemble(obs)
}

// pairEnds returns the ends in a fixed order, each server joined with its client.
func pairEnds(ends map[spanKey]*appSpan) []*appSpan {
	list := make([]*appSpan, 0, len(ends))
	for _, e := range ends {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *appSpan) int {
		return cmp.Or(cmp.Compare(a.span.GetStartTimeUnixNano(), b.span.GetStartTimeUnixNano()),
			cmp.Compare(a.key.trace, b.key.trace), cmp.Compare(a.key.span, b.key.span))
	})
	for _, e := range list {
		if c := ends[e.parent]; !e.client && c != nil && c.client && c.peer == nil {
			e.peer, c.peer = c, e
		}
	}
	return list
}

// observe turns ends of calls into observations with numbers of their own.
func (t *Trial) observe(list []*appSpan) []*observation {
	type happening struct {
		m    *moment
		at   uint64
		step step
		rank int
	}
	perProcess := map[string][]happening{}
	bySpan := map[*appSpan]*observation{}
	var obs []*observation
	for i, e := range list {
		api, grpc := e.api()
		o := &observation{
			span: spanRef(e.span), service: e.service, instance: e.process, api: api, grpc: grpc,
			role: tfiv1.Role_ROLE_SERVER, whole: true, path: e.path(),
		}
		if e.client {
			o.role = tfiv1.Role_ROLE_CLIENT
		}
		switch {
		case e.peer != nil:
			o.peer = e.peer.service
			o.api, o.grpc = e.pairAPI()
		case e.client:
			// No sidecar could stand before a callee that speaks something else, and
			// one that reports no spans is known by name only.
			o.peer = e.text("peer.service", "server.address", "net.peer.name")
			if o.peer == "" || o.api == "" {
				t.Warnings = append(t.Warnings, fmt.Sprintf("span %s (%s): left out: no server span, and not an HTTP or gRPC call to a named peer", o.span, e.span.GetName()))
				continue
			}
		}
		if o.api == "" {
			t.Warnings = append(t.Warnings, fmt.Sprintf("span %s (%s): left out: neither HTTP nor gRPC attributes", o.span, e.span.GetName()))
			continue
		}
		o.status, o.outcome = e.result(o.grpc)
		o.req.nano, o.resp.nano = int64(e.span.GetStartTimeUnixNano()), int64(e.span.GetEndTimeUnixNano())
		bySpan[e] = o
		obs = append(obs, o)
		perProcess[e.process] = append(perProcess[e.process],
			happening{&o.req, e.span.GetStartTimeUnixNano(), stepReq, i},
			happening{&o.resp, e.span.GetEndTimeUnixNano(), stepResp, i})
	}
	for _, hs := range perProcess {
		slices.SortFunc(hs, func(a, b happening) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.step, b.step), cmp.Compare(a.rank, b.rank))
		})
		for i := range hs {
			hs[i].m.seq = uint64(i + 1)
		}
	}
	for _, e := range list {
		server, client := bySpan[e], bySpan[e.peer]
		if e.client || server == nil || client == nil {
			continue
		}
		server.req.from = eventName{client.instance, client.req.seq}
		client.resp.from = eventName{server.instance, server.resp.seq}
	}
	return obs
}

// pairAPI names the call of two ends alike at both: as the callee does, who knows
// its routes, or else as the caller.
func (e *appSpan) pairAPI() (name string, grpc bool) {
	client, server := e, e.peer
	if !e.client {
		client, server = e.peer, e
	}
	if name, grpc = server.api(); name == "" {
		name, grpc = client.api()
	}
	return name, grpc
}

func resourceText(a attributes, name string) string { return a[name].GetStringValue() }

// process names what has one clock.
func process(res attributes) string {
	parts := []string{resourceText(res, "service.name")}
	for _, name := range [...]string{"service.instance.id", "host.name"} {
		if v := resourceText(res, name); v != "" {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, "@")
}

func (e *appSpan) text(names ...string) string {
	for _, n := range names {
		if v := e.attrs[n].GetStringValue(); v != "" {
			return v
		}
	}
	return ""
}

func (e *appSpan) number(names ...string) (int64, bool) {
	for _, n := range names {
		if v, ok := e.attrs[n]; ok {
			return v.GetIntValue(), true
		}
	}
	return 0, false
}

// path is the raw path with query of an HTTP call.
func (e *appSpan) path() string {
	p := e.text("url.path", "http.target")
	if p == "" {
		p = pathOf(e.text("url.full", "http.url"))
	}
	if q := e.text("url.query"); q != "" && !strings.Contains(p, "?") {
		p += "?" + q
	}
	return p[:min(len(p), 512)]
}

func pathOf(url string) string {
	_, rest, ok := strings.Cut(url, "://")
	if !ok {
		return ""
	}
	i := strings.IndexByte(rest, '/')
	if i < 0 {
		return "/"
	}
	return rest[i:]
}

// api names what is called as a sidecar would; empty if it is neither HTTP nor gRPC.
func (e *appSpan) api() (name string, grpc bool) {
	if m := e.text("rpc.method"); m != "" {
		if s := e.text("rpc.service"); s != "" {
			return s + "/" + m, true
		}
		if strings.Contains(m, "/") {
			return strings.TrimPrefix(m, "/"), true
		}
	}
	method := e.text("http.request.method", "http.method")
	if method == "" {
		return "", false
	}
	if route := e.text("http.route"); route != "" {
		// Routers of some languages put the method before the route.
		if i := strings.IndexByte(route, '/'); i >= 0 {
			return method + " " + route[i:], false
		}
	}
	path := e.path()
	if path == "" {
		return "", false
	}
	// As a sidecar without templates would.
	return tfi.DefaultAPI(method, path), false
}

// result tells how the call ended.
func (e *appSpan) result(grpc bool) (uint32, tfiv1.Outcome) {
	status, ok := e.number("http.response.status_code", "http.status_code")
	good := status < 400
	if grpc {
		status, ok = e.number("rpc.grpc.status_code", "rpc.response.status_code")
		good = status == 0
	}
	if status < 0 || status > 1<<16 {
		status, ok = 0, false
	}
	if !ok {
		good = e.span.GetStatus().GetCode() != tracev1.Status_STATUS_CODE_ERROR
	}
	if good {
		return uint32(status), tfiv1.Outcome_OUTCOME_SUCCESS
	}
	return uint32(status), tfiv1.Outcome_OUTCOME_FAILURE
}
