// Package importer makes a first campaign and topology of what people have at
// hand: a curl command line, a HAR file, or a trace from Jaeger.
//
// What it makes is a beginning: it leaves out what belongs to the one request
// that was recorded (trace headers, lengths, hop-by-hop headers), says so, and
// marks what only a person can fill in.
package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/campaignfile/protoyaml"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// ErrInput says that the input is not what it should be.
var ErrInput = errors.New("cannot be imported")

// Imported is what was understood.
type Imported struct {
	// Request that a trial sends.
	Request *campaignv1.HttpRequest
	// Topology as far as the input tells.
	Topology *topology.Topology
	// Notes say what was left out, and what a person should look at.
	Notes []string
}

func (i *Imported) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// Campaign makes a campaign of the request. An empty name is made of the URL.
func (i *Imported) Campaign(name string) *campaignv1.CampaignSpec {
	if name == "" {
		name = nameOf(i.Request.GetUrl())
	}
	return &campaignv1.CampaignSpec{
		Name:     name,
		Topology: "topology.yaml",
		Workload: &campaignv1.Workload{Steps: []*campaignv1.Step{{
			Name: "request", Action: &campaignv1.Step_Http{Http: i.Request},
		}}},
	}
}

// nameOf makes a campaign's name of an URL's path, or of its host.
func nameOf(raw string) string {
	text := "campaign"
	if u, err := url.Parse(raw); err == nil {
		if path := strings.Trim(u.Path, "/"); path != "" {
			text = path
		} else if u.Hostname() != "" {
			text = u.Hostname()
		}
	}
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
		if b.Len() >= 60 {
			break
		}
	}
	if name := strings.Trim(b.String(), "-"); name != "" {
		return name
	}
	return "campaign"
}

// Where the sidecar of an application on this machine may listen.
const inboundPort, otherInboundPort = "15080", "15079"

// oneService is the topology where nothing but the request is known. A request to an
// application on this machine is sent to where its sidecar is to listen.
func (i *Imported) oneService() {
	s := topology.Service{Name: "frontend"}
	if u, host, port := i.local(); u != nil {
		s.App = net.JoinHostPort(host, port)
		inbound := inboundPort
		if port == inboundPort {
			inbound = otherInboundPort
		}
		s.Inbound = net.JoinHostPort(host, inbound)
		u.Host = s.Inbound
		i.Request.Url = u.String()
		i.note("the request goes to %s, where the sidecar is to listen for the application at %s", s.Inbound, s.App)
	}
	i.Topology = &topology.Topology{Services: []topology.Service{s}}
	i.note("the topology knows one service, frontend: name yours, and whom each calls (a trace from Jaeger would tell)")
}

// local gives the request's URL with the address that is meant if it is one of this
// machine without TLS, else nil.
func (i *Imported) local() (u *url.URL, host, port string) {
	u, err := url.Parse(i.Request.GetUrl())
	if err != nil || u.Scheme != "http" {
		return nil, "", ""
	}
	host = u.Hostname()
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, "", ""
	}
	return u, host, cmp.Or(u.Port(), "80")
}

// TopologyYAML writes a topology as a file, fields in the order of their
// documentation.
func TopologyYAML(t *topology.Topology) ([]byte, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("write the topology: %w", err)
	}
	return protoyaml.FromJSON(b)
}

// keepHeader decides about a recorded header; why says why it is left out.
func keepHeader(name string) (keep bool, why string) {
	lower := strings.ToLower(name)
	switch {
	case valid.TraceHeader(name):
		return false, "each trial has a trace of its own"
	case strings.HasPrefix(lower, "x-fic-"):
		return false, "it is one of SequenceFI's own"
	case lower == "content-length", lower == "transfer-encoding", lower == "connection", lower == "keep-alive",
		lower == "proxy-connection", lower == "upgrade", lower == "te", lower == "expect", lower == "host", strings.HasPrefix(lower, ":"):
		return false, "" // the client sets them
	case lower == "accept-encoding":
		return false, "" // answers are compared unpacked
	}
	return true, ""
}

// setHeader takes a recorded header over, or notes why not.
func (i *Imported) setHeader(name, value string) {
	keep, why := keepHeader(name)
	if !keep {
		if why != "" {
			i.note("header %s was left out: %s", name, why)
		}
		return
	}
	if i.Request.Headers == nil {
		i.Request.Headers = make(map[string]string)
	}
	for existing := range i.Request.GetHeaders() {
		if strings.EqualFold(existing, name) {
			i.note("header %s is given more than once: the last one is taken", name)
			delete(i.Request.Headers, existing)
		}
	}
	i.Request.Headers[name] = value
	if namesRequest(name) {
		i.note("header %s names the one request that was recorded: if your services pass it on and no trace header, leave it out here and give topology.yaml traceHeader: %s", name, strings.ToLower(name))
	}
}

// namesRequest says whether a header is one of those by which services without a tracer
// tell what belongs to a request.
func namesRequest(name string) bool {
	switch strings.ToLower(name) {
	case "x-request-id", "x-correlation-id", "x-trace-id", "x-transaction-id":
		return true
	}
	return false
}

// finish looks over what was imported.
func (i *Imported) finish() {
	for _, text := range []string{i.Request.GetUrl(), i.Request.GetBody()} {
		if strings.Contains(text, "${") {
			i.note("the request contains \"${\", which stands for a captured value in a campaign: change it")
			break
		}
	}
	for name := range i.Request.GetHeaders() {
		if lower := strings.ToLower(name); lower == "authorization" || lower == "cookie" {
			i.note("header %s is a secret, and now stands in the campaign file", name)
		}
	}
}
