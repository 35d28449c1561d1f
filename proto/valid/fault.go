package valid

import (
	"strings"
	"time"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Bounds of faults (proto: sequencefi.tfi.v1.Fault).
const (
	MaxDelay        = 5 * time.Minute
	MaxErrorBody    = 4 << 10
	MaxErrorHeaders = 16
)

// Fault returns the problems of a fault.
func Fault(m *tfiv1.Fault) []Problem {
	var c checker
	c.fault("", m)
	return c.problems
}

func (c *checker) fault(path string, m *tfiv1.Fault) {
	switch k := m.GetKind().(type) {
	case *tfiv1.Fault_Delay:
		c.delay(field(path, "delay"), k.Delay)
	case *tfiv1.Fault_Error:
		c.failure(field(path, "error"), k.Error)
	case *tfiv1.Fault_Abort:
	case *tfiv1.Fault_Drop:
		c.duration(field(path, "drop.limit"), k.Drop.GetLimit(), 0, MaxDelay)
	default:
		c.want(path, "must have one of delay, error, abort and drop")
	}
}

func (c *checker) delay(path string, m *tfiv1.Delay) {
	const least = time.Millisecond
	switch d := m.GetDistribution().(type) {
	case *tfiv1.Delay_Fixed:
		c.duration(field(path, "fixed"), d.Fixed, least, MaxDelay)
	case *tfiv1.Delay_Uniform:
		low, high := d.Uniform.GetMin(), d.Uniform.GetMax()
		c.duration(field(path, "uniform.min"), low, 0, MaxDelay)
		c.duration(field(path, "uniform.max"), high, least, MaxDelay)
		if low.AsDuration() > high.AsDuration() {
			c.want(field(path, "uniform.min"), "must be at most max (%v > %v)", low.AsDuration(), high.AsDuration())
		}
	case *tfiv1.Delay_Normal:
		c.duration(field(path, "normal.mean"), d.Normal.GetMean(), least, MaxDelay)
		c.duration(field(path, "normal.stddev"), d.Normal.GetStddev(), 0, MaxDelay)
	case *tfiv1.Delay_Exponential:
		c.duration(field(path, "exponential.mean"), d.Exponential.GetMean(), least, MaxDelay)
	default:
		c.want(path, "must have one of fixed, uniform, normal and exponential")
	}
}

func (c *checker) failure(path string, m *tfiv1.Error) {
	if s := m.GetHttpStatus(); s != 0 && (s < 200 || s > 599) {
		c.want(field(path, "httpStatus"), "must be from 200 to 599, or 0 for 503 (got %d)", s)
	}
	if s := m.GetGrpcStatus(); s > 16 {
		c.want(field(path, "grpcStatus"), "must be from 1 to 16, or 0 for 14 (got %d)", s)
	}
	c.headerValue(field(path, "grpcMessage"), m.GetGrpcMessage())
	if n := len(m.GetBody()); n > MaxErrorBody {
		c.want(field(path, "body"), "must be at most %d bytes (got %d)", MaxErrorBody, n)
	}
	headers := m.GetHeaders()
	if n := len(headers); n > MaxErrorHeaders {
		c.want(field(path, "headers"), "must be at most %d (got %d)", MaxErrorHeaders, n)
	}
	for i, h := range headers {
		at := item(field(path, "headers"), i)
		name := h.GetName()
		c.headerName(field(at, "name"), name)
		if framing(name) {
			c.want(field(at, "name"), "must not be %q: the sidecar sets it", name)
		}
		c.headerValue(field(at, "value"), h.GetValue())
	}
}

// framing reports whether a header belongs to the connection or to SequenceFI.
func framing(name string) bool {
	switch name {
	case "connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer",
		"transfer-encoding", "upgrade", "grpc-status", "grpc-message":
		return true
	}
	return strings.HasPrefix(name, "x-fic-")
}
