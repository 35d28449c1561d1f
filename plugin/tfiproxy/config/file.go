package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// ErrInvalid says that a configuration cannot be used.
var ErrInvalid = errors.New("bad configuration")

// Error lists all that is wrong with a configuration.
type Error struct {
	Problems []Problem
}

// Problem is one thing that is wrong.
type Problem struct {
	// Path of the field, as `inbound[0].listen`.
	Path string
	// Want says what would be right.
	Want string
}

// Error lists the problems, each on a line of its own.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(ErrInvalid.Error())
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  %s: %s", p.Path, p.Want)
	}
	return b.String()
}

// Unwrap returns [ErrInvalid].
func (e *Error) Unwrap() error { return ErrInvalid }

// Parse reads a configuration file (JSON; testdata/config.json has every
// field). Fields that it does not know are refused. Errors: a [*Error].
func Parse(b []byte) (*Config, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var root any
	err := d.Decode(&root)
	if err == nil {
		switch _, after := d.Token(); {
		case after == nil:
			err = errors.New("something follows the configuration")
		case !errors.Is(after, io.EOF):
			err = after
		}
	}
	if err != nil {
		return nil, &Error{Problems: []Problem{{Path: "(file)", Want: "must be one JSON object: " + err.Error()}}}
	}
	p := &reader{}
	c := &Config{}
	o := p.object("", root)
	c.Service = o.text("service")
	c.Instance = o.text("instance")
	c.Admin = o.address("admin")
	c.Profiles = o.flag("profiles")
	c.Workers = o.number("workers", 0, 1024)
	for i, v := range o.list("inbound") {
		c.Listeners = append(c.Listeners, p.listener(fmt.Sprintf("inbound[%d]", i), tfi.RoleServer, v))
	}
	for i, v := range o.list("outbound") {
		c.Listeners = append(c.Listeners, p.listener(fmt.Sprintf("outbound[%d]", i), tfi.RoleClient, v))
	}
	c.Clusters = p.clusters(o)
	p.policy(&c.Policy, o)
	p.limits(&c.Limits, o)
	p.timeouts(&c.Timeouts, o)
	o.end()

	if c.Service == "" && !p.has("service") {
		p.problem("service", "must name the service beside the sidecar")
	}
	if len(c.Listeners) == 0 {
		p.problem("inbound, outbound", "must have at least one listener in all")
	}
	p.listenOnce(c)
	if len(p.problems) > 0 {
		return nil, &Error{Problems: p.problems}
	}
	c.WithDefaults()
	return c, nil
}

// listenOnce refuses ports of which the system would give the first only.
func (p *reader) listenOnce(c *Config) {
	var taken []string
	take := func(path, address string) {
		for _, earlier := range taken {
			if overlap(address, earlier) {
				p.problem(path, fmt.Sprintf("must not be %s, for %s is listened on already", address, earlier))
				break
			}
		}
		taken = append(taken, address)
	}
	for i := range c.Listeners {
		take(c.Path(i)+".listen", c.Listeners[i].Listen)
	}
	take("admin", c.Admin)
}

// overlap reports whether to listen on one address is to listen on the other too. An empty
// one is none.
func overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil {
		return false
	}
	// Decimal numbers, which may have zeros before them.
	if portA, portB = strings.TrimLeft(portA, "0"), strings.TrimLeft(portB, "0"); portA == "" || portA != portB {
		return false
	}
	if isEveryHost(hostA) || isEveryHost(hostB) {
		return true
	}
	ipA, errA := netip.ParseAddr(hostA)
	ipB, errB := netip.ParseAddr(hostB)
	if errA == nil && errB == nil {
		return ipA.Unmap() == ipB.Unmap()
	}
	return strings.EqualFold(hostA, hostB)
}

// isEveryHost reports whether a host to listen on stands for all addresses, of IPv4 and of
// IPv6: package net takes 0.0.0.0 for both.
func isEveryHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().IsUnspecified()
}

func (p *reader) listener(path string, role tfi.Role, v any) Listener {
	o := p.object(path, v)
	l := Listener{Role: role, Listen: o.address("listen"), Upstream: o.address("upstream")}
	transparent := o.flag("transparent")
	if l.Listen == "" && !p.has(o.at("listen")) {
		p.problem(o.at("listen"), "must be an address (host:port)")
	}
	switch {
	case transparent && l.Upstream != "":
		p.problem(o.at("upstream"), "must be absent where transparent is true")
	case !transparent && l.Upstream == "" && !p.has(o.at("upstream")):
		p.problem(o.at("upstream"), "must be an address (host:port), or transparent true")
	}
	if role == tfi.RoleClient {
		l.Cluster = o.text("cluster")
		if l.Cluster == "" && !transparent && !p.has(o.at("cluster")) {
			p.problem(o.at("cluster"), "must be the name by which policies know the upstream")
		}
	}
	l.TLS = p.serverTLS(o)
	l.UpstreamTLS = p.clientTLS(o)
	o.end()
	return l
}

func (p *reader) serverTLS(o *object) *ServerTLS {
	v, ok := o.take("tls")
	if !ok {
		return nil
	}
	c := p.object(o.at("tls"), v)
	s := &ServerTLS{Cert: c.text("cert"), Key: c.text("key"), ClientCA: c.text("client_ca")}
	for _, f := range []struct{ name, value string }{{"cert", s.Cert}, {"key", s.Key}} {
		if f.value == "" && !p.has(c.path) && !p.has(c.at(f.name)) {
			p.problem(c.at(f.name), "must be the name of a PEM file")
		}
	}
	for i, v := range c.list("alpn") {
		if v != "h2" && v != "http/1.1" {
			p.problem(fmt.Sprintf("%s[%d]", c.at("alpn"), i), `must be "h2" or "http/1.1"`)
			continue
		}
		s.ALPN = append(s.ALPN, v.(string))
	}
	c.end()
	return s
}

func (p *reader) clientTLS(o *object) *ClientTLS {
	v, ok := o.take("upstream_tls")
	if !ok || v == false {
		return nil
	}
	if v == true {
		return &ClientTLS{}
	}
	if _, ok := v.(map[string]any); !ok {
		p.problem(o.at("upstream_tls"), "must be true, false or an object")
		return nil
	}
	c := p.object(o.at("upstream_tls"), v)
	s := &ClientTLS{
		CA: c.text("ca"), ServerName: c.text("server_name"),
		Cert: c.text("cert"), Key: c.text("key"), Insecure: c.flag("insecure_skip_verify"),
	}
	if s.ServerName != "" && !isServerName(s.ServerName) {
		p.problem(c.at("server_name"), fmt.Sprintf("must be a host name or an IP address, without a port, not %q", s.ServerName))
	}
	if (s.Cert == "") != (s.Key == "") && !p.has(c.at("cert")) && !p.has(c.at("key")) {
		p.problem(c.path, "must have both cert and key, or neither")
	}
	if s.Insecure && s.CA != "" {
		p.problem(c.at("insecure_skip_verify"), "must be absent where ca says who is to be believed")
	}
	c.end()
	return s
}

// isServerName reports whether text can be what a certificate is made out to.
func isServerName(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || strings.ContainsRune(":/@[]*\x7f", r) })
}

func (p *reader) clusters(o *object) map[string]string {
	v, ok := o.take("clusters")
	if !ok {
		return nil
	}
	out := map[string]string{}
	c := p.object("clusters", v)
	for _, name := range slices.Sorted(maps.Keys(c.fields)) {
		out[name] = c.address(name)
	}
	return out
}

func (p *reader) policy(s *PolicySource, o *object) {
	v, ok := o.take("policy")
	if !ok {
		return
	}
	c := p.object("policy", v)
	s.File = c.text("file")
	s.Address = c.address("address")
	s.TokenFile = c.text("token_file")
	s.TTL = c.duration("ttl")
	if s.File != "" && s.Address != "" {
		p.problem("policy", "must have file or address, not both")
	}
	c.end()
}

func (p *reader) limits(l *Limits, o *object) {
	v, ok := o.take("limits")
	if !ok {
		return
	}
	c := p.object("limits", v)
	l.Connections = c.number("connections", 1, 1<<20)
	l.HeadBytes = c.number("head_bytes", 1<<10, MaxHeadBytes)
	l.Streams = c.number("streams", 1, 1<<20)
	l.Trials = c.number("trials", 1, 1<<20)
	c.end()
}

func (p *reader) timeouts(t *Timeouts, o *object) {
	v, ok := o.take("timeouts")
	if !ok {
		return
	}
	c := p.object("timeouts", v)
	t.Connect = c.duration("connect")
	t.Head = c.duration("head")
	t.Idle = c.duration("idle")
	t.Stall = c.duration("stall")
	t.Hold = c.duration("hold")
	t.Drain = c.duration("drain")
	t.Tick = c.duration("tick")
	c.end()
}

// reader collects problems while a decoded file is walked.
type reader struct {
	problems []Problem
}

func (p *reader) problem(path, want string) {
	p.problems = append(p.problems, Problem{Path: path, Want: want})
}

// has reports whether path has a problem already, so that it gets no second one.
func (p *reader) has(path string) bool {
	return slices.ContainsFunc(p.problems, func(x Problem) bool { return x.Path == path })
}

// object is an object whose fields are taken out one by one; what is left
// at the end is unknown.
type object struct {
	p      *reader
	path   string
	fields map[string]any
}

func (p *reader) object(path string, v any) *object {
	m, ok := v.(map[string]any)
	if !ok {
		if path == "" {
			p.problem("(file)", "must be a JSON object")
		} else {
			p.problem(path, "must be an object")
		}
	}
	return &object{p: p, path: path, fields: maps.Clone(m)}
}

func (o *object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

func (o *object) take(name string) (any, bool) {
	v, ok := o.fields[name]
	delete(o.fields, name)
	return v, ok
}

func (o *object) end() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		o.p.problem(o.at(name), "is no field of this object")
	}
}

func (o *object) text(name string) string {
	v, ok := o.take(name)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok || s == "" {
		o.p.problem(o.at(name), "must be a string that is not empty")
	}
	return s
}

func (o *object) flag(name string) bool {
	v, ok := o.take(name)
	if !ok {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		o.p.problem(o.at(name), "must be true or false")
	}
	return b
}

func (o *object) number(name string, least, most int) int {
	v, ok := o.take(name)
	if !ok {
		return 0
	}
	n, isNumber := v.(json.Number)
	i, err := strconv.Atoi(string(n))
	if !isNumber || err != nil || i < least || i > most {
		o.p.problem(o.at(name), fmt.Sprintf("must be a whole number from %d to %d", least, most))
		return 0
	}
	return i
}

func (o *object) duration(name string) time.Duration {
	v, ok := o.take(name)
	if !ok {
		return 0
	}
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		o.p.problem(o.at(name), `must be a duration above 0, as "5s"`)
		return 0
	}
	return d
}

func (o *object) address(name string) string {
	v, ok := o.take(name)
	if !ok {
		return ""
	}
	s, _ := v.(string)
	host, port, err := net.SplitHostPort(s)
	n, numErr := strconv.ParseUint(port, 10, 16)
	if err != nil || numErr != nil || strings.ContainsAny(host, " /") || (n == 0 && name != "listen" && name != "admin") {
		o.p.problem(o.at(name), "must be an address (host:port)")
		return ""
	}
	return s
}

func (o *object) list(name string) []any {
	v, ok := o.take(name)
	if !ok {
		return nil
	}
	l, ok := v.([]any)
	if !ok {
		o.p.problem(o.at(name), "must be a list")
	}
	return l
}
