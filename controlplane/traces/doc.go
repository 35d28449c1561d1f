// Package traces is where the control plane gets spans from: an OTLP receiver
// that feeds an embedded store, or a Jaeger that has them already.
//
// It does not interpret spans; that is the solver's. The three types to read
// first are [Store], [Receiver] and [Jaeger]. [Store] and [Jaeger] are sources:
// they have the same two methods,
//
//	Spans(ctx, ids) (*tracev1.TracesData, error)
//	Wait(ctx, ids, seen) error
//
// so that a consumer can read what there is, and wait until there is more.
package traces

import (
	"encoding/hex"
	"errors"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

// TraceID is a W3C trace id; a 64-bit id stands in its last 8 bytes.
type TraceID = [16]byte

// ErrClosed says that a source was closed while somebody waited for it.
var ErrClosed = errors.New("trace source closed")

// Count returns the number of spans in td, as Wait wants it.
func Count(td *tracev1.TracesData) int {
	n := 0
	for _, rs := range td.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			n += len(ss.GetSpans())
		}
	}
	return n
}

func hexID(id TraceID) string { return hex.EncodeToString(id[:]) }
