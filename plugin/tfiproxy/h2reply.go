package tfiproxy

import (
	"strconv"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// reply answers in the callee's place, and ends the stream.
func (x *h2trial) reply() {
	f := &x.fault.Fault.Error
	b := x.h.out[:0]
	var text []byte
	if x.grpc {
		b = appendLiteral(b, ":status", "200")
		b = appendLiteral(b, "content-type", "application/grpc")
		b = appendLiteral(b, "grpc-status", strconv.Itoa(f.GRPCStatus))
		b = appendLiteral(b, "grpc-message", appendGRPCMessage(nil, f.GRPCMessage))
	} else {
		b = appendLiteral(b, ":status", strconv.Itoa(f.HTTPStatus))
		if f.HTTPStatus != 204 && f.HTTPStatus != 304 {
			text = f.Body
			// It is the one thing of the sidecar's own that takes of the client's windows.
			if n := int64(len(text)); !x.isHead && (n > x.h.clientWindow.Load() || n > x.h.window.Load()) {
				text = nil
			}
			b = appendLiteral(b, "content-length", strconv.Itoa(len(text))) // RFC 9110, 8.6
		}
		if x.isHead {
			text = nil
		}
	}
	b = x.appendExtras(b, f, x.decided.Evidence, len(text) > 0)
	x.h.out = b
	s := x.s
	x.h.down.enqueueHeaders(s.client, b, len(text) == 0)
	if n := int64(len(text)); n > 0 {
		x.h.down.enqueue(appendData(nil, s.client, text))
		x.h.window.Add(-n)
		x.h.debt.Add(n)
	}
	if !s.clientDone {
		x.h.down.enqueue(appendReset(nil, s.client, codeNone)) // RFC 9113, 8.1
	}
	if s.server != 0 && (!s.serverDone || !s.clientDone) {
		x.h.up.enqueue(appendReset(nil, s.server, codeCancel))
	}
	x.settleWindow()
	x.h.forget(s)
}

// appendExtras appends a fault's own headers and its mark.
func (x *h2trial) appendExtras(b []byte, f *tfi.ErrorSpec, evidence []byte, text bool) []byte {
	typed := x.grpc
	for _, h := range f.Headers {
		switch h.Name {
		case "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "proxy-connection":
			continue // they are the sidecar's, or not HTTP/2's
		case "content-type":
			if x.grpc {
				continue
			}
			typed = true
		}
		b = appendLiteral(b, h.Name, h.Value)
	}
	if text && !typed {
		b = appendLiteral(b, "content-type", "text/plain")
	}
	b = appendLiteral(b, tfi.InjectedHeader, x.fault.ID)
	if len(evidence) > 0 {
		b = appendLiteral(b, tfi.EvidenceHeader, evidence)
	}
	return b
}
