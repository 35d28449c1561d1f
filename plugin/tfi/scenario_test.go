package tfi_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestScenarios plays testdata/*.txt. A file is a few blocks: a command, `----`,
// and what the sidecars say of it, up to an empty line. Commands:
//
//	activation               the rest of the block is an Activation in protobuf's text form
//	call ID FROM TO METHOD PATH [HEADER=VALUE]...
//	                         FROM's application calls TO; "-" is outside the mesh
//	retry ID                 the mesh brings the request to the callee once more
//	answer ID STATUS         the callee's application answers, and the answer travels back
//	deliver ID               its last byte has gone to the caller's application
//	wait DURATION            the sidecars' clocks go on
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &scenario{t: t, calls: map[string]*hop{}}
			var out []string
			for block := range strings.SplitSeq(strings.TrimRight(string(text), "\n"), "\n\n") {
				input, want, ok := strings.Cut(block+"\n", "\n----\n")
				want = strings.TrimSuffix(want, "\n")
				if !ok {
					out = append(out, block)
					continue
				}
				got := s.run(input)
				if got != want && !*update {
					t.Errorf("%s:\n got %s\nwant %s", input, got, want)
				}
				out = append(out, input+"\n----\n"+got)
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type scenario struct {
	t     *testing.T
	mesh  *mesh
	calls map[string]*hop
	said  []string
}

func (s *scenario) run(input string) string {
	s.said = nil
	var command, rest string
	for line := range strings.SplitSeq(input, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case command == "":
			command = line
		default:
			rest += line + "\n"
		}
	}
	f := strings.Fields(command)
	switch f[0] {
	case "activation":
		s.activation(rest)
	case "call":
		s.call(f[1], strings.TrimPrefix(f[2], "-"), f[3], f[4], f[5], f[6:])
	case "retry":
		x := s.calls[f[1]]
		x.server = tfi.Call{}
		d := s.mesh.engines[x.to].Request(&x.server, &tfi.Request{
			Role: tfi.RoleServer, Method: "GET", Path: x.path, Headers: x.headers, Now: s.mesh.now,
		})
		s.say(x.to, &x.server, d, "req")
	case "answer":
		x := s.calls[f[1]]
		status, err := strconv.Atoi(f[2])
		if err != nil {
			s.t.Fatal(err)
		}
		server, client := x.answer(status)
		if s.mesh.engines[x.to] != nil {
			s.say(x.to, &x.server, server, "resp")
		}
		if x.from != "" {
			s.say(x.from, &x.client, client, "resp")
		}
		if _, ok := x.backAtApp[tfi.EvidenceHeader]; ok {
			s.t.Errorf("%s: evidence reaches the caller's application", command)
		}
	case "deliver":
		x := s.calls[f[1]]
		s.mesh.now++
		s.mesh.engines[x.from].Delivered(&x.client, s.mesh.now)
		s.say(x.from, &x.client, tfi.Decision{}, "delivered")
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.mesh.now += d
		return "ok"
	default:
		s.t.Fatalf("unknown command %q", command)
	}
	return strings.Join(s.said, "\n")
}

func (s *scenario) activation(text string) {
	var a tfiv1.Activation
	if err := prototext.Unmarshal([]byte(text), &a); err != nil {
		s.t.Fatal(err)
	}
	if a.Remaining == nil {
		a.Remaining = durationpb.New(time.Minute)
	}
	s.mesh = newMesh(s.t, a.Services, a.Tfics...)
	p := parse(s.t, s.mesh.policy(a.Services[0]))
	for i, e := range p.Activation(testKey).Predicates {
		line := fmt.Sprintf("%d: %s %v of %q with %s %v", i, e.Op.Observer, e.Op.Role, e.Op.API, e.Op.Peer, e.Op.Phase)
		if e.Outcome != tfi.OutcomeAny {
			line += " " + e.Outcome.String()
		}
		if e.Delivered {
			line += " delivered"
		}
		s.said = append(s.said, line)
	}
	s.said = append(s.said, "ok")
}

func (s *scenario) call(id, from, to, method, path string, pairs []string) {
	h := headers{"traceparent": traceparent(testKey)}
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		h[name] = value
		if value == "" {
			delete(h, name)
		}
	}
	x := s.mesh.request(from, to, method, path, h)
	x.path = path
	s.calls[id] = x
	if from != "" {
		s.say(from, &x.client, x.dc, "req")
	}
	if x.arrived {
		s.say(to, &x.server, x.ds, "req")
	}
	if _, ok := x.atApp[tfi.EvidenceHeader]; ok && x.arrived && x.ds.Action != tfi.ActionError {
		s.t.Errorf("call %s: evidence reaches the callee's application", id)
	}
}

// say tells what a sidecar made of a message.
func (s *scenario) say(service string, c *tfi.Call, d tfi.Decision, kind string) {
	r := c.Record()
	if r == nil {
		s.said = append(s.said, service+": no trial")
		return
	}
	e := map[string]tfi.EventRecord{"req": r.Req, "resp": r.Resp, "delivered": r.Delivered}[kind]
	if e.Seq == 0 {
		s.said = append(s.said, fmt.Sprintf("%s %v/%s: no event", service, r.Role, kind))
		return
	}
	line := fmt.Sprintf("%s %v/%s: k=%d seq=%d", service, r.Role, kind, r.K, e.Seq)
	if r.Retry {
		line += " retry"
	}
	if d.Action != tfi.ActionForward {
		line += fmt.Sprintf(" %s by %s", d.TFIC.Fault.Kind, d.TFIC.ID)
	}
	for _, j := range r.Judged {
		if j.Phase.String() == kind {
			line += fmt.Sprintf(" %s=%s", j.TFIC.ID, j.Reason)
		}
	}
	if d.Action != tfi.ActionForward || len(r.Judged) > 0 {
		line += " known [" + knownText(r.Known) + "]"
	}
	s.said = append(s.said, line)
}
