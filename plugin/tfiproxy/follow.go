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
	"syscall"
	"time"
)

// The protocol of the control plane's policy port (package policypoll serves it):
//
//	GET /v1/policy/<service>?instance=<name>&version=<etag of the one in force>&refused=<etag>&reason=<text>
//	authorization: Bearer <token>
//	user-agent: tfiproxy/<version>, or tfiproxy
//
//	200 with etag and a serialised sequencefi.tfi.v1.Policy: it replaces the old one
//	204: nothing has changed for as long as a poll may wait, which is 10 s at most
//	410: the service has no policy any more
//
// x-sequencefi-ttl says for how many seconds what there is holds from then on; a 204
// without it prolongs nothing. A policy that cannot be used is named as refused from then
// on, until another one can.
const (
	policyPath = "/v1/policy/"
	ttlHeader  = "x-sequencefi-ttl"
)

const (
	// maxTTL bounds what a plane may ask for.
	maxTTL = 24 * time.Hour
	// Bounds of the pause after a failure.
	minBackOff = 100 * time.Millisecond
	maxBackOff = time.Second
	// minNews is the time between two news in the long run: planes push less often, so
	// that what they push is acknowledged at once.
	minNews = 50 * time.Millisecond
	// pollTimeout is how long a poll may take, whatever the TTL: planes answer sooner.
	pollTimeout = 15 * time.Second
	// maxReason bounds what is said of a policy that was refused.
	maxReason = 512
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
		b, err := readFile(name, maxPolicyFile)
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
	proxy  *Proxy
	source *PolicySource
	client client
	// refused is the last policy if it could not be used, and reason says why.
	refused, reason string
	// timeout of a poll: the plane is dead then.
	timeout time.Duration
}

// followPlane polls the control plane.
func (p *Proxy) followPlane(ctx context.Context, s *PolicySource) {
	f := &poller{
		proxy: p, source: s, timeout: pollTimeout,
		client: client{address: s.Address, connect: p.cfg.Timeouts.Connect},
	}
	defer f.client.close()
	backOff := minBackOff
	var due time.Time // when the next news may come
	var told string   // the failure that has been logged
	for ctx.Err() == nil {
		asked := time.Now()
		news, err := f.poll(ctx)
		pause := time.Duration(0)
		switch {
		case err == nil && news:
			backOff, told = minBackOff, ""
			pause = max(0, time.Until(due))
			due = time.Now().Add(pause + minNews)
		case err == nil:
			// A plane that does not let polls wait must not be asked all the time.
			backOff, told = minBackOff, ""
			pause = minBackOff - time.Since(asked)
		case ctx.Err() != nil:
			return
		default:
			// A plane that is not there yet may turn out to want another token.
			if told != err.Error() {
				told = err.Error()
				p.logFailure(s, err)
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

// logFailure logs why a poll failed. That nobody listens is how it is between campaigns.
func (p *Proxy) logFailure(s *PolicySource, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) && p.policies.version() == "" {
		p.log.Info("no control plane; traffic passes", "address", s.Address)
		return
	}
	p.log.Warn("control plane", "address", s.Address, "error", err)
}

// poll asks once, and reports whether the plane had news: what changes the next question.
func (f *poller) poll(ctx context.Context) (news bool, err error) {
	p := f.proxy
	fields, err := f.fields()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	question := f.question()
	r, err := f.client.do(ctx, "GET", question, f.source.Address, fields)
	if err != nil {
		return false, err
	}
	etag, tagged := r.head.Header("etag")
	switch {
	case r.status == 410: // whatever else it says
		p.policies.clear()
		f.refused, f.reason = "", ""
	case r.status == 200 && tagged, r.status == 204:
		ttl, prolongs, err := f.lifetime(&r)
		switch {
		case err != nil:
			return false, err
		case r.status == 200:
			f.take(r.body, strings.Clone(etag), ttl)
		case prolongs:
			p.policies.keep(ttl)
		}
	default:
		return false, fmt.Errorf("%w: status %d %s", errPoll, r.status, hint(r.status))
	}
	return f.question() != question, nil
}

// hint says what is mostly wrong.
func hint(status int) string {
	switch status {
	case 401:
		return "(policy.token_file has not the control plane's token)"
	case 409:
		return "(another sidecar polls under the same service and instance)"
	case 503:
		return "(it is going)"
	}
	return "(does policy.address name the control plane's policy port?)"
}

// question is the request's target.
func (f *poller) question() string {
	p := f.proxy
	where := policyPath + url.PathEscape(p.cfg.Service) + "?instance=" + url.QueryEscape(p.cfg.Instance)
	if held := p.policies.version(); held != "" {
		where += "&version=" + url.QueryEscape(held)
	}
	if f.refused != "" {
		where += "&refused=" + url.QueryEscape(f.refused) + "&reason=" + url.QueryEscape(f.reason)
	}
	return where
}

// lifetime reads the TTL of an answer; prolongs: it has one.
func (f *poller) lifetime(r *reply) (ttl time.Duration, prolongs bool, err error) {
	v, ok := r.head.Header(ttlHeader)
	if !ok {
		return f.source.TTL, false, nil
	}
	seconds, err := strconv.ParseFloat(v, 64)
	if err != nil || !(seconds > 0 && seconds <= maxTTL.Seconds()) { // NaN is neither
		return 0, false, fmt.Errorf("%w: %s %q", errPoll, ttlHeader, v)
	}
	return time.Duration(seconds * float64(time.Second)), true, nil
}

// take puts a policy in force, or remembers that it could not be.
func (f *poller) take(policy []byte, etag string, ttl time.Duration) {
	p := f.proxy
	err := p.policies.applyAs(etag, policy, ttl)
	if err == nil {
		f.refused, f.reason = "", ""
		return
	}
	before := f.refused
	f.refused, f.reason = etag, err.Error()
	f.reason = f.reason[:min(len(f.reason), maxReason)]
	if before == etag {
		return // it has been said
	}
	p.log.Error("policy refused; the last good one stays in force until its TTL", "version", etag, "error", err)
}

// fields are the request's header lines. The token is read each time: tokens are rotated.
func (f *poller) fields() (string, error) {
	fields := "user-agent: tfiproxy\r\n"
	if version := f.proxy.cfg.Version; version != "" && isFieldValue([]byte(version)) {
		fields = "user-agent: tfiproxy/" + version + "\r\n"
	}
	if f.source.TokenFile == "" {
		return fields, nil
	}
	b, err := readFile(f.source.TokenFile, maxTokenFile)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if !isFieldValue([]byte(token)) {
		return "", fmt.Errorf("token: %s holds a control character", f.source.TokenFile)
	}
	return fields + "authorization: Bearer " + token + "\r\n", nil
}
