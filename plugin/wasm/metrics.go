package wasm

import (
	"hash/fnv"
	"strconv"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// metric names a counter of the plugin.
type metric uint8

const (
	metricEvents metric = iota
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
	metricNoDirection
	metricSpans
	metricSpansDropped
	metricExportErrors
	numMetrics
)

// MetricPrefix begins the names of all of the plugin's statistics.
const MetricPrefix = "sequencefi."

// The ABI knows no tags: a statistic has a name and nothing else, and Envoy takes
// tags out of names by the regular expressions of its bootstrap. So the names
// read well without one (`sequencefi_injections_fault_delay`), and with
// [StatsTags] become `sequencefi_injections{fault="delay"}`.
var metricNames = [numMetrics]string{
	metricEvents:          "events",
	metricMatches:         "matches",
	metricDelays:          "injections.fault.delay",
	metricErrors:          "injections.fault.error",
	metricAborts:          "injections.fault.abort",
	metricDrops:           "injections.fault.drop",
	metricLetGo:           "injections_let_go",
	metricEvidenceDropped: "evidence_dropped",
	metricTableFull:       "table_full",
	metricInternal:        "internal_errors",
	metricExpired:         "expired",
	metricBadPolicy:       "bad_policies",
	metricNoDirection:     "no_direction",
	metricSpans:           "spans",
	metricSpansDropped:    "spans_dropped",
	metricExportErrors:    "export_errors",
}

// StatsTag is an entry of `stats_config.stats_tags` in an Envoy bootstrap.
type StatsTag struct {
	Name  string `json:"tag_name"`
	Regex string `json:"regex"`
}

// StatsTags returns what a bootstrap may hold so that the plugin's statistics
// have tags in /stats/prometheus.
func StatsTags() []StatsTag {
	return []StatsTag{{Name: "fault", Regex: `^wasmcustom\.sequencefi\.injections(\.fault\.(\w+))$`}}
}

// metrics are the plugin's statistics; Envoy adds up what its workers count.
type metrics struct {
	counters [numMetrics]host.Metric
	// counted is what the host has not been told yet: a call for each event would
	// cost more than the event.
	counted [numMetrics]uint64
	pending bool
	// stopped is how many streams have stopped, less those that go on again.
	stopped int64
	policy  host.Metric
	live    host.Metric
	paused  host.Metric
}

func defineMetrics() *metrics {
	m := &metrics{}
	for i, name := range metricNames {
		m.counters[i] = host.Define(host.Counter, MetricPrefix+name)
	}
	m.policy = host.Define(host.Gauge, MetricPrefix+"policy_version")
	m.live = host.Define(host.Gauge, MetricPrefix+"activations")
	m.paused = host.Define(host.Gauge, MetricPrefix+"paused_streams")
	return m
}

func (m *metrics) inc(c metric) { m.add(c, 1) }

func (m *metrics) add(c metric, n int) {
	if m != nil && n > 0 {
		m.counted[c] += uint64(n)
		m.pending = true
	}
}

// stop counts streams that stop (1) or go on (-1).
func (m *metrics) stop(n int64) {
	m.stopped += n
	m.pending = true
}

// flush tells the host what was counted.
func (m *metrics) flush() {
	if !m.pending {
		return
	}
	m.pending = false
	if m.stopped != 0 {
		m.paused.Add(m.stopped) // workers add up
		m.stopped = 0
	}
	for i := range m.counted {
		if n := m.counted[i]; n > 0 {
			m.counted[i] = 0
			m.counters[i].Add(int64(n))
		}
	}
}

// Observer of the engine.
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

// applied shows what policy is in force: its version if that is a number, else
// 32 bits of its hash.
func (m *metrics) applied(version string, activations int) {
	n, err := strconv.ParseUint(version, 10, 63)
	if err != nil {
		h := fnv.New32a()
		_, _ = h.Write([]byte(version)) // never fails
		n = uint64(h.Sum32())
	}
	m.policy.Set(n)
	m.live.Set(uint64(activations))
}
