package tfiproxy

import (
	"strconv"
	"sync/atomic"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// metric names a counter.
type metric uint8

const (
	metricConnections metric = iota
	metricRefused            // beyond the connection limit
	metricUnseen             // passed through as bytes: TLS and tunnels
	metricRequests
	metricRequestsHTTP2
	metricMalformed
	metricUpstreamErrors
	metricTimeouts
	metricFloods
	metricTLSErrors
	metricTLSReloads
	metricEvents
	metricMatches
	metricDelays
	metricErrors
	metricAborts
	metricDrops
	metricLetGo
	metricEvidenceDropped
	metricTableFull
	metricInternal
	metricExpired
	metricBadPolicy
	metricPolicies
	metricPolicyLapsed
	metricPollErrors
	metricSpans
	metricSpansDropped
	metricExportErrors
	numMetrics
)

// metricNames are Prometheus names with their labels. They begin as those of the
// Envoy filter do, so that one dashboard shows both.
var metricNames = [numMetrics]string{
	metricConnections:     "sequencefi_connections_total",
	metricRefused:         "sequencefi_connections_refused_total",
	metricUnseen:          "sequencefi_connections_unseen_total",
	metricRequests:        `sequencefi_requests_total{protocol="http1"}`,
	metricRequestsHTTP2:   `sequencefi_requests_total{protocol="http2"}`,
	metricMalformed:       "sequencefi_malformed_total",
	metricUpstreamErrors:  "sequencefi_upstream_errors_total",
	metricTimeouts:        "sequencefi_timeouts_total",
	metricFloods:          "sequencefi_floods_total",
	metricTLSErrors:       "sequencefi_tls_handshake_errors_total",
	metricTLSReloads:      "sequencefi_tls_reloads_total",
	metricEvents:          "sequencefi_events",
	metricMatches:         "sequencefi_matches",
	metricDelays:          `sequencefi_injections{fault="delay"}`,
	metricErrors:          `sequencefi_injections{fault="error"}`,
	metricAborts:          `sequencefi_injections{fault="abort"}`,
	metricDrops:           `sequencefi_injections{fault="drop"}`,
	metricLetGo:           "sequencefi_injections_let_go",
	metricEvidenceDropped: "sequencefi_evidence_dropped",
	metricTableFull:       "sequencefi_table_full",
	metricInternal:        "sequencefi_internal_errors",
	metricExpired:         "sequencefi_expired",
	metricBadPolicy:       "sequencefi_bad_policies",
	metricPolicies:        "sequencefi_policies_applied",
	metricPolicyLapsed:    "sequencefi_policies_lapsed",
	metricPollErrors:      "sequencefi_poll_errors",
	metricSpans:           "sequencefi_spans",
	metricSpansDropped:    "sequencefi_spans_dropped",
	metricExportErrors:    "sequencefi_export_errors",
}

// metrics are the sidecar's counters.
type metrics struct {
	counters [numMetrics]atomic.Uint64
	// open connections of clients.
	open atomic.Int64
}

func (m *metrics) inc(c metric) { m.counters[c].Add(1) }

func (m *metrics) add(c metric, n int) { m.counters[c].Add(uint64(n)) }

func (m *metrics) get(c metric) uint64 { return m.counters[c].Load() }

var _ tfi.Observer = (*metrics)(nil)

var engineMetrics = [tfi.Metrics]metric{
	tfi.MetricEvent:           metricEvents,
	tfi.MetricMatch:           metricMatches,
	tfi.MetricDelay:           metricDelays,
	tfi.MetricError:           metricErrors,
	tfi.MetricAbort:           metricAborts,
	tfi.MetricDrop:            metricDrops,
	tfi.MetricEvidenceDropped: metricEvidenceDropped,
	tfi.MetricTableFull:       metricTableFull,
	tfi.MetricInternal:        metricInternal,
	tfi.MetricExpired:         metricExpired,
	tfi.MetricLetGo:           metricLetGo,
}

// Count implements [tfi.Observer].
func (m *metrics) Count(c tfi.Metric) {
	if int(c) < len(engineMetrics) {
		m.inc(engineMetrics[c])
	}
}

// appendText appends the counters in Prometheus's text form.
func (m *metrics) appendText(b []byte) []byte {
	for i, name := range metricNames {
		b = appendMetric(b, name, m.counters[i].Load())
	}
	return appendMetric(b, "sequencefi_connections_open", uint64(max(m.open.Load(), 0)))
}

func appendMetric(b []byte, name string, v uint64) []byte {
	b = append(b, name...)
	b = append(b, ' ')
	b = strconv.AppendUint(b, v, 10)
	return append(b, '\n')
}
