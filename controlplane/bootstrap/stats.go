package bootstrap

import (
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
)

// faultStat is how the plugin counts injections; a filter can give its statistics
// no tags, so Envoy takes the kind of fault out of the name.
const faultStat = `^wasmcustom\.sequencefi\.injections(\.fault\.(\w+))$`

// statsConfig makes /stats/prometheus show sequencefi_injections{fault="delay"}.
func statsConfig() *metricsv3.StatsConfig {
	return &metricsv3.StatsConfig{StatsTags: []*metricsv3.TagSpecifier{{
		TagName:  "fault",
		TagValue: &metricsv3.TagSpecifier_Regex{Regex: faultStat},
	}}}
}
