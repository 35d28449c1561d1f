package tfiproxy

import (
	"bytes"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// maxProfile bounds how long the CPU is profiled.
const maxProfile = time.Minute

// profile serves /debug/pprof/profile?seconds=N and the runtime's named profiles
// (/debug/pprof/heap, …), in the form that `go tool pprof` reads. It reports whether
// the request was one of these; never unless profiles were asked for.
func (p *Proxy) profile(s *sock, head *requestHead) bool {
	where, query, _ := strings.Cut(string(path(head.target)), "?")
	name, ok := strings.CutPrefix(where, "/debug/pprof/")
	if !ok || !p.cfg.Profiles || string(head.method) != "GET" {
		return false
	}
	var b bytes.Buffer
	status := 200
	if name == "profile" {
		length := 10 * time.Second
		if n, err := strconv.Atoi(strings.TrimPrefix(query, "seconds=")); err == nil && n > 0 {
			length = min(time.Duration(n)*time.Second, maxProfile)
		}
		_ = s.tcp.SetDeadline(time.Now().Add(length + adminTimeout)) // a failed write tells
		if err := pprof.StartCPUProfile(&b); err != nil {
			status = 503
			b.WriteString(err.Error())
		} else {
			select {
			case <-time.After(length):
			case <-p.cutOff:
			}
			pprof.StopCPUProfile()
		}
	} else if named := pprof.Lookup(name); named != nil {
		if err := named.WriteTo(&b, 0); err != nil {
			status = 500
		}
	} else {
		status = 404
	}
	_ = s.write(adminReply(status, "application/octet-stream", b.Bytes(), false)) // its loss
	s.linger()
	return true
}
