package tfiproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// The protocol of the control plane's policy port (package policypoll serves it):
//
//	GET /v1/policy/<service>?instance=<name>&version=<etag of the one in force>
//	authorization: Bearer <token>
//
//	200 with etag and a serialised sequencefi.tfi.v1.Policy: it replaces the old one
//	204: nothing has changed for as long as a poll may wait
//	404: the service has no policy (any more)
//
// Each answer's x-sequencefi-ttl says for how many seconds it holds.
const (
	policyPath = "/v1/policy/"
	ttlHeader  = "x-sequencefi-ttl"
)

const (
	// maxTTL bounds what a plane may ask for.
	maxTTL = 24 * time.Hour
	// Bounds of the pause after a failure.
	minBackOff = 100 * time.Millisecond
	maxBackOff = 5 * time.Second
	// filePeriod is how often a policy file is looked at.
	filePeriod = 200 * time.Millisecond
)

// errPoll says that the control plane's answer is none that the protocol knows.
var errPoll = errors.New("unexpected answer of the control plane")

// follow keeps the policy up to date until ctx ends.
func (p *Proxy) follow(ctx context.Context) {
	switch s := &p.cfg.Policy; {
	case s.File != "":
		p.followFile(ctx, s.File)
	case s.Address != "":
		p.followPlane(ctx, s)
	}
}

// followFile reads the file whenever it changes. It has no TTL: a file has no
// heartbeat, and the lifetimes of its activations count from its first reading.
func (p *Proxy) followFile(ctx context.Context, name string) {
	t := time.NewTicker(filePeriod)
	defer t.Stop()
	var last []byte
	known := false
	var told string
	for {
		b, err := os.ReadFile(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			if known {
				p.policies.clear()
			}
			known, last = false, nil
		case err != nil:
			if told != err.Error() {
				told = err.Error()
				p.log.Error("policy file", "error", err)
			}
		case !known || !bytes.Equal(b, last):
			known, last = true, b
			if err := p.policies.apply(b, 0); err != nil {
				p.log.Error("policy file refused; the last good policy stays in force", "file", name, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// poller follows a control plane.
type poller struct {
	proxy   *Proxy
	source  *PolicySource
	client  client
	version string // of the policy in force, as the plane names it
	// ttl is what the plane said last. It answers within that, so a poll that takes
	// longer is dead.
	ttl time.Duration
}

// followPlane polls the control plane.
func (p *Proxy) followPlane(ctx context.Context, s *PolicySource) {
	f := &poller{
		proxy: p, source: s, ttl: s.TTL,
		client: client{address: s.Address, connect: p.cfg.Timeouts.Connect},
	}
	defer f.client.close()
	backOff := minBackOff
	for ctx.Err() == nil {
		if p.policies.hasLapsed() {
			f.version = ""
		}
		asked := time.Now()
		changed, err := f.poll(ctx)
		pause := time.Duration(0)
		switch {
		case err == nil && changed:
			backOff = minBackOff
		case err == nil:
			// A plane that does not let polls wait must not be asked all the time.
			backOff = minBackOff
			pause = minBackOff - time.Since(asked)
		case ctx.Err() != nil:
			return
		default:
			if backOff == minBackOff {
				p.log.Warn("control plane", "address", s.Address, "error", err)
			}
			p.metrics.inc(metricPollErrors)
			// Many sidecars lose one plane at once; they must not come back at once.
			pause = backOff/2 + rand.N(backOff/2)
			backOff = min(2*backOff, maxBackOff)
		}
		if pause > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}
}

// poll asks once, and reports whether the policy changed.
func (f *poller) poll(ctx context.Context) (changed bool, err error) {
	p := f.proxy
	fields, err := f.authorization()
	if err != nil {
		return false, err
	}
	where := policyPath + url.PathEscape(p.cfg.Service) +
		"?instance=" + url.QueryEscape(p.cfg.Instance) + "&version=" + url.QueryEscape(f.version)
	ctx, cancel := context.WithTimeout(ctx, f.ttl)
	defer cancel()
	r, err := f.client.do(ctx, "GET", where, f.source.Address, fields, nil)
	if err != nil {
		return false, err
	}
	ttl := f.source.TTL
	if v, ok := r.head.Header(ttlHeader); ok {
		seconds, err := strconv.ParseFloat(v, 64)
		if err != nil || seconds <= 0 || seconds > maxTTL.Seconds() {
			return false, fmt.Errorf("%w: %s %q", errPoll, ttlHeader, v)
		}
		ttl = time.Duration(seconds * float64(time.Second))
	}
	f.ttl = ttl
	switch r.status {
	case 200:
		etag, _ := r.head.Header("etag")
		// Refused or not: the same bytes need not be sent again.
		f.version = strings.Clone(etag)
		if err := p.policies.apply(r.body, ttl); err != nil {
			p.log.Error("policy refused; the last good one stays in force", "version", etag, "error", err)
		}
		return true, nil
	case 204:
		p.policies.keep(ttl)
		return false, nil
	case 404:
		p.policies.clear()
		f.version = ""
		return false, nil
	}
	return false, fmt.Errorf("%w: status %d", errPoll, r.status)
}

// authorization reads the token each time: tokens are rotated.
func (f *poller) authorization() (fields string, err error) {
	if f.source.TokenFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(f.source.TokenFile)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if !isFieldValue([]byte(token)) {
		return "", fmt.Errorf("token: %s holds a control character", f.source.TokenFile)
	}
	return "authorization: Bearer " + token + "\r\n", nil
}
