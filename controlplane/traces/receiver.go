package traces

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	coltracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // exporters may compress
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
)

// Sink takes the spans that a [Receiver] gets.
type Sink interface {
	// Add takes td over, and says how many of its spans it refused, and why. It
	// must not block.
	Add(td *tracev1.TracesData) (rejected int, why string)
}

var (
	_ Sink = (*Store)(nil)
	_ Sink = (*Forwarder)(nil)
)

// ReceiverOptions of [Listen].
type ReceiverOptions struct {
	// HTTP is the address (host:port) for OTLP/HTTP, path /v1/traces, in protobuf
	// and JSON; empty: none. Port 0 takes a free one.
	HTTP string
	// GRPC is the address for OTLP/gRPC; empty: none.
	GRPC string
	// Sink gets the spans; required.
	Sink Sink
	// Forward gets a copy of them too; nil: nobody.
	Forward *Forwarder
	// MaxBody bounds a request's body, decompressed; 16 MiB by default.
	MaxBody int64
	// MaxInFlight bounds the requests that are decoded at the same time, further
	// ones are told to come again; 32 by default. With MaxBody it bounds memory, over
	// gRPC that of each connection: a request is decoded there before it is asked for.
	MaxInFlight int
}

// ReceiverStats counts what a [Receiver] has done.
type ReceiverStats struct {
	// Requests that were taken; Refused ones were malformed, too large or too many.
	Requests, Refused uint64
}

// Receiver is an OTLP server for traces.
type Receiver struct {
	o        ReceiverOptions
	slots    chan struct{}
	requests atomic.Uint64
	refused  atomic.Uint64

	httpLis net.Listener
	grpcLis net.Listener
	http    *http.Server
	grpc    *grpc.Server
	served  chan struct{} // one value for each server that has ended
}

const (
	pathTraces  = "/v1/traces"
	typeProto   = "application/x-protobuf"
	typeJSON    = "application/json"
	readTimeout = 30 * time.Second
	// retryAfter is what a busy receiver asks for, in seconds: the least there is.
	retryAfter = "1"
)

var (
	errBusy  = errors.New("too many requests at once: send again later")
	errLarge = errors.New("body too large: send smaller batches")
	errMedia = errors.New("want content type " + typeProto + " or " + typeJSON)
)

// Listen binds the addresses and serves until Close.
//
// Errors: an address that cannot be bound; nothing is left listening then.
func Listen(ctx context.Context, o ReceiverOptions) (*Receiver, error) {
	if o.Sink == nil {
		return nil, errors.New("traces: ReceiverOptions.Sink is nil")
	}
	o.MaxBody = cmp.Or(o.MaxBody, 16<<20)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 32)
	r := &Receiver{o: o, slots: make(chan struct{}, o.MaxInFlight), served: make(chan struct{}, 2)}
	var lc net.ListenConfig
	var err error
	if o.HTTP != "" {
		if r.httpLis, err = lc.Listen(ctx, "tcp", o.HTTP); err != nil {
			return nil, fmt.Errorf("OTLP/HTTP receiver: %w", err)
		}
	}
	if o.GRPC != "" {
		if r.grpcLis, err = lc.Listen(ctx, "tcp", o.GRPC); err != nil {
			if r.httpLis != nil {
				err = errors.Join(err, r.httpLis.Close())
			}
			return nil, fmt.Errorf("OTLP/gRPC receiver: %w", err)
		}
	}
	r.serve()
	return r, nil
}

func (r *Receiver) serve() {
	if r.httpLis != nil {
		mux := http.NewServeMux()
		mux.Handle(pathTraces, r)
		r.http = &http.Server{
			Handler:           mux,
			ReadHeaderTimeout: readTimeout,
			ReadTimeout:       readTimeout,
			IdleTimeout:       2 * time.Minute,
			Protocols:         new(http.Protocols),
		}
		// Sidecars may speak HTTP/2 to their cluster of this receiver.
		r.http.Protocols.SetHTTP1(true)
		r.http.Protocols.SetUnencryptedHTTP2(true)
		go func() {
			_ = r.http.Serve(r.httpLis) // ends by Close only
			r.served <- struct{}{}
		}()
	}
	if r.grpcLis != nil {
		r.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(int(r.o.MaxBody)),
			grpc.MaxConcurrentStreams(uint32(r.o.MaxInFlight))) //nolint:gosec // a few
		coltracev1.RegisterTraceServiceServer(r.grpc, grpcReceiver{r: r})
		go func() {
			_ = r.grpc.Serve(r.grpcLis) // ends by Close only
			r.served <- struct{}{}
		}()
	}
}

// HTTPAddr is where OTLP/HTTP is served; empty: nowhere.
func (r *Receiver) HTTPAddr() string { return addrOf(r.httpLis) }

// GRPCAddr is where OTLP/gRPC is served; empty: nowhere.
func (r *Receiver) GRPCAddr() string { return addrOf(r.grpcLis) }

func addrOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// Stats returns what was received so far.
func (r *Receiver) Stats() ReceiverStats {
	return ReceiverStats{Requests: r.requests.Load(), Refused: r.refused.Load()}
}

// Close stops serving and waits until requests that have begun are done, for a
// second at most.
func (r *Receiver) Close() error {
	var errs []error
	if r.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.http.Shutdown(ctx); err != nil {
			errs = append(errs, r.http.Close())
		}
		<-r.served
	}
	if r.grpc != nil {
		force := time.AfterFunc(time.Second, r.grpc.Stop)
		defer force.Stop()
		r.grpc.GracefulStop()
		<-r.served
	}
	return errors.Join(errs...)
}

// take hands td to the sinks.
func (r *Receiver) take(td *tracev1.TracesData) *coltracev1.ExportTraceServiceResponse {
	r.requests.Add(1)
	if r.o.Forward != nil {
		r.o.Forward.Add(td)
	}
	resp := &coltracev1.ExportTraceServiceResponse{}
	if n, why := r.o.Sink.Add(td); n > 0 {
		resp.PartialSuccess = &coltracev1.ExportTracePartialSuccess{RejectedSpans: int64(n), ErrorMessage: why}
	}
	return resp
}

// acquire takes one of the slots, without waiting.
func (r *Receiver) acquire() bool {
	select {
	case r.slots <- struct{}{}:
		return true
	default:
		r.refused.Add(1)
		return false
	}
}

func (r *Receiver) release() { <-r.slots }

// ServeHTTP answers one OTLP/HTTP export.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "OTLP is sent by POST", http.StatusMethodNotAllowed)
		return
	}
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || (media != typeProto && media != typeJSON) {
		r.refuse(w, typeJSON, http.StatusUnsupportedMediaType, errMedia)
		return
	}
	if !r.acquire() {
		w.Header().Set("Retry-After", retryAfter)
		writeReply(w, media, http.StatusServiceUnavailable, failure(codes.Unavailable, errBusy))
		return
	}
	defer r.release()
	body, err := r.readBody(req)
	if err != nil {
		code := http.StatusBadRequest
		if errors.Is(err, errLarge) {
			code = http.StatusRequestEntityTooLarge
		}
		r.refuse(w, media, code, err)
		return
	}
	var in coltracev1.ExportTraceServiceRequest
	if media == typeJSON {
		err = unmarshalOTLPJSON(body, &in)
	} else {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil {
		r.refuse(w, media, http.StatusBadRequest, fmt.Errorf("not an ExportTraceServiceRequest: %w", err))
		return
	}
	writeReply(w, media, http.StatusOK, r.take(&tracev1.TracesData{ResourceSpans: in.GetResourceSpans()}))
}

func (r *Receiver) readBody(req *http.Request) ([]byte, error) {
	var body io.Reader = req.Body
	switch encoding := strings.ToLower(req.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(req.Body)
		if err != nil {
			return nil, fmt.Errorf("body is not gzip: %w", err)
		}
		defer z.Close()
		body = z
	default:
		return nil, fmt.Errorf("content encoding %q: gzip or none is wanted", encoding)
	}
	b, err := bounded.Read(body, r.o.MaxBody)
	switch {
	case errors.Is(err, bounded.ErrTooLarge):
		return nil, errLarge
	case err != nil:
		return nil, fmt.Errorf("body cannot be read: %w", err)
	}
	return b, nil
}

func (r *Receiver) refuse(w http.ResponseWriter, media string, code int, err error) {
	r.refused.Add(1)
	writeReply(w, media, code, failure(codes.InvalidArgument, err))
}

func failure(code codes.Code, err error) *statuspb.Status {
	return &statuspb.Status{Code: int32(code), Message: err.Error()}
}

// writeReply answers in the form of the request, as OTLP wants.
func writeReply(w http.ResponseWriter, media string, code int, m proto.Message) {
	marshal := proto.Marshal
	if media == typeJSON {
		marshal = protojson.Marshal
	}
	b, err := marshal(m)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(code)
	_, _ = w.Write(b) // the exporter has gone
}

// grpcReceiver is a Receiver's gRPC service.
type grpcReceiver struct {
	coltracev1.UnimplementedTraceServiceServer
	r *Receiver
}

func (g grpcReceiver) Export(_ context.Context, in *coltracev1.ExportTraceServiceRequest) (*coltracev1.ExportTraceServiceResponse, error) {
	if !g.r.acquire() {
		return nil, status.Error(codes.Unavailable, errBusy.Error())
	}
	defer g.r.release()
	return g.r.take(&tracev1.TracesData{ResourceSpans: in.GetResourceSpans()}), nil
}
