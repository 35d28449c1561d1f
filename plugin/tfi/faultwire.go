package tfi

import (
	"fmt"
	"strings"
	"time"
)

func (d *policyDecoder) fault(path string, b []byte) Fault {
	var v Fault
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			v = Fault{Kind: FaultDelay, Delay: d.delay(join(path, "delay"), f.bytes("delay"))}
		case 2:
			v = Fault{Kind: FaultError, Error: d.errorSpec(join(path, "error"), f.bytes("error"))}
		case 3:
			v = Fault{Kind: FaultAbort}
		case 4:
			v = Fault{Kind: FaultDrop, Drop: defaultDrop}
			drop := join(path, "drop")
			d.message(drop, f.bytes("drop"), func(f field) {
				if f.num == 1 {
					if limit := f.duration("limit"); limit != 0 {
						v.Drop = limit
					}
				}
			})
			if v.Drop < 0 || v.Drop > maxDelay {
				d.problem(join(drop, "limit"), "must be from 0 to 5 minutes")
			}
		}
	})
	if v.Kind == 0 {
		d.problem(path, "must be delay, error, abort or drop")
	}
	return v
}

func (d *policyDecoder) delay(path string, b []byte) Delay {
	var v Delay
	d.message(path, b, func(f field) {
		// two decodes a message of up to two durations.
		two := func(name string) (a, b time.Duration) {
			d.message(join(path, name), f.bytes(name), func(f field) {
				switch f.num {
				case 1:
					a = f.duration("1")
				case 2:
					b = f.duration("2")
				}
			})
			return a, b
		}
		switch f.num {
		case 1:
			v = Delay{Distribution: DelayFixed, A: f.duration("fixed")}
		case 2:
			v = Delay{Distribution: DelayUniform}
			v.A, v.B = two("uniform")
		case 3:
			v = Delay{Distribution: DelayNormal}
			v.A, v.B = two("normal")
		case 4:
			v = Delay{Distribution: DelayExponential}
			v.A, _ = two("exponential")
		}
	})
	switch {
	case v.Distribution == 0:
		d.problem(path, "must be fixed, uniform, normal or exponential")
	case v.A < 0 || v.A > maxDelay || v.B < 0 || v.B > maxDelay:
		d.problem(path, "must have durations from 0 to 5 minutes")
	case v.Distribution == DelayUniform && v.A > v.B:
		d.problem(join(path, "uniform"), "must have min not above max")
	}
	return v
}

func (d *policyDecoder) errorSpec(path string, b []byte) ErrorSpec {
	e := ErrorSpec{HTTPStatus: 503, GRPCStatus: 14, GRPCMessage: "fault injected by SequenceFI"}
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			if v := f.uint32("http_status"); v != 0 {
				e.HTTPStatus = int(v)
			}
		case 2:
			if v := f.uint32("grpc_status"); v != 0 {
				e.GRPCStatus = int(v)
			}
		case 3:
			if v := f.text("grpc_message"); v != "" {
				e.GRPCMessage = v
			}
		case 4:
			e.Body = f.bytes("body")
		case 5:
			var h Header
			header := fmt.Sprintf("%s.headers[%d]", path, len(e.Headers))
			d.message(header, f.bytes("headers"), func(f field) {
				switch f.num {
				case 1:
					h.Name = f.text("name")
				case 2:
					h.Value = f.text("value")
				}
			})
			if h.Name == "" || h.Name != strings.ToLower(h.Name) {
				d.problem(join(header, "name"), "must be a header name in lower case")
			}
			if strings.ContainsAny(h.Name+h.Value, "\r\n\x00") {
				d.problem(header, "must be on one line")
			}
			e.Headers = append(e.Headers, h)
		}
	})
	if e.HTTPStatus < 200 || e.HTTPStatus > 599 {
		d.problem(join(path, "http_status"), "must be 0 or 200 to 599")
	}
	if e.GRPCStatus > 16 {
		d.problem(join(path, "grpc_status"), "must be 0 or 1 to 16")
	}
	if len(e.Body) > maxFaultBody {
		d.problem(join(path, "body"), "must be at most %d bytes", maxFaultBody)
	}
	if n := len(e.Headers); n > maxFaultHeaders {
		d.problem(join(path, "headers"), "must be at most %d, and are %d", maxFaultHeaders, n)
	}
	return e
}
