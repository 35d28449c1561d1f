package wasm

import (
	"unsafe"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// Values of xds.listener_direction (envoy.config.core.v3.TrafficDirection).
const (
	directionInbound  = 1
	directionOutbound = 2
)

// direction tells which end of the call this sidecar stands at. One plugin serves
// inbound and outbound listeners, so only the stream knows.
func direction() (tfi.Role, bool) {
	switch intProperty(propertyDirection) {
	case directionInbound:
		return tfi.RoleServer, true
	case directionOutbound:
		return tfi.RoleClient, true
	}
	return 0, false
}

func (s *stream) onRequest() action {
	role, ok := direction()
	if !ok {
		s.root.vm.metrics.inc(metricNoDirection)
		return goOn
	}
	headers := s.headers(host.RequestHeaders)
	method, _ := headers.Header(":method")
	path, _ := headers.Header(":path")
	contentType, _ := headers.Header("content-type")
	s.role, s.grpc = role, isGRPC(contentType)
	r := tfi.Request{
		Role: role, Method: method, Path: path, GRPC: s.grpc,
		Headers: headers, Now: s.root.vm.clock(),
	}
	if role == tfi.RoleClient {
		cluster := host.Property(propertyCluster)
		r.Cluster = unsafe.String(unsafe.SliceData(cluster), len(cluster))
	}
	d := s.root.engine.Request(s.call, &r)
	return s.judgedRequest(&d)
}

// judgedRequest does what was decided.
func (s *stream) judgedRequest(d *tfi.Decision) action {
	if d.Action == tfi.ActionForward || d.Action == tfi.ActionDelay {
		s.attach(d, host.RequestHeaders)
		if len(d.TraceParent) > 0 {
			s.check(host.Replace(host.RequestHeaders, "traceparent", string(d.TraceParent)))
		}
	}
	if !s.call.Active() {
		s.refused()
		return goOn
	}
	s.root.vm.serving = true
	s.crashAt("request")
	if d.TFIC != nil {
		s.fault = d.TFIC
		s.reportDecision()
	}
	switch d.Action {
	case tfi.ActionDelay:
		s.request = waiting
		s.pause(d.Delay, thenResumeRequest)
		return pauseAll
	case tfi.ActionDrop:
		s.request = swallowed
		s.pause(d.Delay, thenReset)
		return pauseAll
	case tfi.ActionError:
		return s.reply(&d.TFIC.Fault.Error, d.Evidence)
	case tfi.ActionAbort:
		s.reset()
		return pauseAll
	}
	return goOn
}
