package tfiproxy

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// adminTimeout bounds one call of the admin port.
const adminTimeout = 5 * time.Second

// serveAdmin answers on the admin port until it is closed: one request a
// connection, which is all that probes and scrapers need.
func (p *Proxy) serveAdmin(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		conn, err := p.admin.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		calls.Go(func() { p.serveAdminConn(ctx, conn.(*net.TCPConn)) })
	}
}

func (p *Proxy) serveAdminConn(ctx context.Context, tcp *net.TCPConn) {
	var s sock
	defer context.AfterFunc(ctx, func() { _ = tcp.Close() })() // the owner sees it and ends
	defer func() {
		if r := recover(); r != nil {
			p.metrics.inc(metricInternal)
			p.log.Error("recovered", "panic", r)
		}
		s.close()
	}()
	if s.open(tcp) != nil || tcp.SetDeadline(time.Now().Add(adminTimeout)) != nil {
		_ = tcp.Close() // broken already
		return
	}
	var b *buffer
	defer func() { putBuffer(b) }()
	var head requestHead
	for {
		var err error
		if b, err = s.read(b); err != nil {
			return
		}
		if size := headEnd(b.data(), 0); size > 0 {
			status, contentType, text := 400, "", []byte("bad request\n")
			if head.scan(b.data()[:size], "") == nil {
				if p.profile(&s, &head) {
					return
				}
				status, contentType, text = p.adminAnswer(&head)
			}
			_ = s.write(adminReply(status, contentType, text, string(head.method) == "HEAD")) // its loss
			s.linger()
			return
		}
		if b.w == len(b.b) {
			return
		}
	}
}

func adminReply(status int, contentType string, text []byte, head bool) []byte {
	if contentType == "" {
		contentType = "text/plain; charset=utf-8"
	}
	b := append([]byte("HTTP/1.1 "), strconv.Itoa(status)+" "+reason(status)+"\r\n"...)
	b = appendField(b, "content-type", contentType)
	b = appendField(b, "content-length", strconv.Itoa(len(text)))
	b = appendField(b, "connection", "close")
	b = append(b, "\r\n"...)
	if head {
		return b
	}
	return append(b, text...)
}

// adminAnswer makes the answer to one request.
func (p *Proxy) adminAnswer(head *requestHead) (status int, contentType string, text []byte) {
	where, _, _ := strings.Cut(string(path(head.target)), "?")
	method := string(head.method)
	read := method == "GET" || method == "HEAD"
	switch {
	case where == "/ready" && read:
		if p.draining.Load() {
			return 503, "", []byte("draining\n")
		}
		return 200, "", []byte("ready\n")
	case where == "/metrics" && read:
		state := p.policies.state()
		b := p.metrics.appendText(nil)
		b = appendMetric(b, "sequencefi_activations", uint64(len(state.Activations)))
		b = appendMetric(b, "sequencefi_trials", uint64(p.policies.store.Len()))
		b = append(b, "sequencefi_policy_info{version="...)
		b = strconv.AppendQuote(b, state.Version)
		return 200, "text/plain; version=0.0.4; charset=utf-8", append(b, "} 1\n"...)
	case where == "/policy" && read:
		b, err := json.MarshalIndent(p.policies.state(), "", "  ")
		if err != nil {
			return 500, "", []byte(err.Error() + "\n")
		}
		return 200, "application/json", append(b, '\n')
	case where == "/drain" && method == "POST":
		p.Drain()
		return 200, "", []byte("draining\n")
	case where == "/ready", where == "/metrics", where == "/policy":
		return 405, "", []byte("use GET\n")
	case where == "/drain":
		return 405, "", []byte("use POST\n")
	}
	return 404, "", []byte("there are /ready, /metrics, /policy and /drain\n")
}
