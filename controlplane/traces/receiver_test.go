package traces

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	coltracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

func listen(t *testing.T, o ReceiverOptions) *Receiver {
	t.Helper()
	r, err := Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

type post struct {
	method, media, encoding string
	body                    []byte
}

type reply struct {
	code   int
	header http.Header
	body   string
}

func (p post) send(t *testing.T, addr string) reply {
	t.Helper()
	if p.method == "" {
		p.method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), p.method, "http://"+addr+"/v1/traces", bytes.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", p.media)
	if p.encoding != "" {
		req.Header.Set("Content-Encoding", p.encoding)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{code: resp.StatusCode, header: resp.Header, body: string(b)}
}

func encoded(t *testing.T, td *tracev1.TracesData) []byte {
	t.Helper()
	b, err := proto.Marshal(td)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// exampleJSON is in the form that the OTLP specification gives.
const exampleJSON = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"web"}}]},
 "scopeSpans":[{"scope":{"name":"sequencefi"},"spans":[{"traceId":"5F000000000000000000000000000007","spanId":"0000000000000001",
 "parentSpanId":"","name":"GET /route","startTimeUnixNano":"1700000000000001000","endTimeUnixNano":1700000000005001000,"kind":3,
 "attributes":[{"key":"sequencefi.k","value":{"intValue":"1"}},{"key":"sequencefi.api","value":{"stringValue":"GET /route"}},
 {"key":"traceId","value":{"kvlistValue":{"values":[{"key":"spanId","value":{"stringValue":"not hex"}}]}}}],
 "links":[{"traceId":"5f000000000000000000000000000008","spanId":"0000000000000002"}],"newField":1}]}]}]}`

func TestReceiverHTTP(t *testing.T) {
	s := NewStore(StoreOptions{})
	r := listen(t, ReceiverOptions{HTTP: "127.0.0.1:0", Sink: s, MaxBody: 4096})
	for i, tc := range []struct {
		name string
		post post
		code int
		text string // part of the reply
	}{
		{name: "protobuf", post: post{media: typeProto, body: encoded(t, data("web", span(traceID(1), 1)))}, code: 200},
		{name: "gzip", post: post{media: typeProto, encoding: "gzip", body: zipped(t, encoded(t, data("web", span(traceID(2), 1))))}, code: 200},
		{name: "json", post: post{media: typeJSON + "; charset=utf-8", body: []byte(exampleJSON)}, code: 200, text: "{}"},
		{name: "json, a bad span", post: post{media: typeJSON, body: []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab","spanId":"0000000000000002"}]}]}]}`)}, code: 200, text: "16 bytes"},
		{name: "json, no hex", post: post{media: typeJSON, body: []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xyz"}]}]}]}`)}, code: 400, text: "hex digits"},
		{name: "json, broken", post: post{media: typeJSON, body: []byte(`{`)}, code: 400, text: "ExportTraceServiceRequest"},
		{name: "protobuf, broken", post: post{media: typeProto, body: []byte{0x0a, 0xff}}, code: 400, text: "ExportTraceServiceRequest"},
		{name: "other type", post: post{media: "text/plain"}, code: 415, text: typeProto},
		{name: "no type", post: post{}, code: 415, text: typeProto},
		{name: "other method", post: post{method: http.MethodGet, media: typeProto}, code: 405, text: "POST"},
		{name: "other encoding", post: post{media: typeProto, encoding: "br"}, code: 400, text: "gzip"},
		{name: "no gzip", post: post{media: typeProto, encoding: "gzip", body: []byte("x")}, code: 400, text: "not gzip"},
		{name: "too large", post: post{media: typeProto, body: make([]byte, 4097)}, code: 413, text: "smaller"},
		{name: "too large unpacked", post: post{media: typeProto, encoding: "gzip", body: zipped(t, make([]byte, 1<<20))}, code: 413, text: "smaller"},
	} {
		got := tc.post.send(t, r.HTTPAddr())
		if got.code != tc.code || !strings.Contains(got.body, tc.text) {
			t.Errorf("%d %s: %d %s", i, tc.name, got.code, got.body)
		}
	}
	if st := r.Stats(); st.Requests != 4 || st.Refused != 9 {
		t.Errorf("%+v", st)
	}
	td, err := s.Spans(t.Context(), []TraceID{traceID(7)})
	if err != nil {
		t.Fatal(err)
	}
	spans := flatten(td)
	if len(spans) != 1 {
		t.Fatalf("spans from JSON: %v", spans)
	}
	got := spans[0].Span
	want := span(traceID(7), 1)
	linked := traceID(8)
	want.Links = []*tracev1.Span_Link{{TraceId: linked[:], SpanId: []byte{0, 0, 0, 0, 0, 0, 0, 2}}}
	if len(got.GetAttributes()) != 3 {
		t.Errorf("attributes %v", got.GetAttributes())
	}
	got.Attributes = nil
	want.Attributes = nil
	got.ParentSpanId = nil // "" and none are the same
	if diff := gocmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReceiverBusy(t *testing.T) {
	s := NewStore(StoreOptions{})
	r := listen(t, ReceiverOptions{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Sink: s, MaxInFlight: 1})
	r.slots <- struct{}{} // a request that never ends
	got := post{media: typeProto}.send(t, r.HTTPAddr())
	if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %v", got.code, got.header)
	}
	cc, err := grpc.NewClient("passthrough:///"+r.GRPCAddr(), insecureOption())
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	_, err = coltracev1.NewTraceServiceClient(cc).Export(t.Context(), &coltracev1.ExportTraceServiceRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("gRPC: %v", err)
	}
	<-r.slots
	if got := (post{media: typeProto}).send(t, r.HTTPAddr()); got.code != http.StatusOK {
		t.Errorf("afterwards: %d", got.code)
	}
}

func TestReceiverGRPC(t *testing.T) {
	s := NewStore(StoreOptions{})
	r := listen(t, ReceiverOptions{GRPC: "127.0.0.1:0", Sink: s})
	if r.HTTPAddr() != "" {
		t.Errorf("HTTP at %s", r.HTTPAddr())
	}
	cc, err := grpc.NewClient("passthrough:///"+r.GRPCAddr(), insecureOption())
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	c := coltracev1.NewTraceServiceClient(cc)
	in := &coltracev1.ExportTraceServiceRequest{ResourceSpans: data("web", span(traceID(1), 1), &tracev1.Span{}).GetResourceSpans()}
	out, err := c.Export(t.Context(), in, grpc.UseCompressor(grpcgzip.Name))
	if err != nil || out.GetPartialSuccess().GetRejectedSpans() != 1 {
		t.Errorf("%v %v", out, err)
	}
	if st := s.Stats(); st.Spans != 1 {
		t.Errorf("%+v", st)
	}
}

func TestReceiverForwards(t *testing.T) {
	far, near := NewStore(StoreOptions{}), NewStore(StoreOptions{})
	farReceiver := listen(t, ReceiverOptions{HTTP: "127.0.0.1:0", Sink: far})
	f, err := NewForwarder("http://" + farReceiver.HTTPAddr() + "/")
	if err != nil {
		t.Fatal(err)
	}
	r := listen(t, ReceiverOptions{HTTP: "127.0.0.1:0", Sink: near, Forward: f})
	post{media: typeProto, body: encoded(t, data("web", span(traceID(1), 1)))}.send(t, r.HTTPAddr())
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if near.Stats().Spans != 1 || far.Stats().Spans != 1 {
		t.Errorf("near %+v far %+v", near.Stats(), far.Stats())
	}
	if st := f.Stats(); st.Sent != 1 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

func TestForwarderLoses(t *testing.T) {
	refusing := listen(t, ReceiverOptions{HTTP: "127.0.0.1:0", Sink: NewStore(StoreOptions{}), MaxBody: 1})
	f, err := NewForwarder("http://" + refusing.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	f.Add(data("web", span(traceID(1), 1), span(traceID(1), 2)))
	waitUntil(t, func() bool { return f.Stats().Lost == 2 })
	if err := f.Stats().LastError; err == nil || !strings.Contains(err.Error(), "413") {
		t.Errorf("%v", err)
	}
	f.Close()
	for range forwardQueue + 1 { // nobody takes them any more
		f.Add(data("web", span(traceID(1), 1)))
	}
	if st := f.Stats(); st.Lost != 3 || !errors.Is(st.LastError, errQueueFull) {
		t.Errorf("%+v", st)
	}
	for _, bad := range []string{"", "localhost:4318", "ftp://h", "http://", "jaeger://h:1"} {
		if _, err := NewForwarder(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestListenErrors(t *testing.T) {
	s := NewStore(StoreOptions{})
	r := listen(t, ReceiverOptions{HTTP: "127.0.0.1:0", Sink: s})
	for name, o := range map[string]ReceiverOptions{
		"HTTP address taken": {HTTP: r.HTTPAddr(), Sink: s},
		"gRPC address taken": {HTTP: "127.0.0.1:0", GRPC: r.HTTPAddr(), Sink: s},
		"no sink":            {HTTP: "127.0.0.1:0"},
	} {
		if _, err := Listen(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzOTLPJSON(f *testing.F) {
	f.Add([]byte(exampleJSON))
	f.Add([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":1}]}]}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var in coltracev1.ExportTraceServiceRequest
		if unmarshalOTLPJSON(b, &in) == nil {
			NewStore(StoreOptions{}).Add(&tracev1.TracesData{ResourceSpans: in.GetResourceSpans()})
		}
	})
}
