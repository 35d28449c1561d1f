package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
)

// tracer is what an application passes on of a request's trace headers: nothing but what
// one kind of tracer knows.
type tracer struct {
	name    string
	forward func(in, out http.Header)
}

const someSpan = "00f067aa0ba902b7"

func copying(names ...string) func(in, out http.Header) {
	return func(in, out http.Header) {
		for _, name := range names {
			if v := in.Get(name); v != "" {
				out.Set(name, v)
			}
		}
	}
}

// tracers that applications have; the last one forgets everything.
var tracers = []tracer{
	{"w3c", copying("traceparent")},
	{"b3", copying("b3")},
	{"b3multi", copying("x-b3-traceid", "x-b3-spanid", "x-b3-sampled")},
	// One that reads 64 bits takes the lower ones (https://github.com/openzipkin/b3-propagation).
	{"b3of64", func(in, out http.Header) {
		if id := in.Get("x-b3-traceid"); len(id) >= 16 {
			out.Set("x-b3-traceid", id[len(id)-16:])
			out.Set("x-b3-spanid", someSpan)
		}
	}},
	// One that writes 128 bits pads a shorter id, as OpenTelemetry does.
	{"b3of128", func(in, out http.Header) {
		if id, _, ok := strings.Cut(in.Get("b3"), "-"); ok {
			out.Set("b3", strings.Repeat("0", 32-len(id))+id+"-"+someSpan+"-1")
		}
	}},
	{"jaeger", func(in, out http.Header) {
		value, err := url.PathUnescape(in.Get("uber-trace-id"))
		if id, _, ok := strings.Cut(value, ":"); ok && err == nil {
			out.Set("uber-trace-id", id+"%3A"+someSpan+"%3A0%3A1")
		}
	}},
	{"own", copying("x-trace")},
	// One that reads what most send, and writes what its company always has.
	{"translating", func(in, out http.Header) {
		copying("b3")(in, out)
		if parent := in.Get("traceparent"); len(parent) > 52 {
			out.Set("b3", parent[3:52]+"-1")
		}
	}},
	// One that trusts no caller starts a trace anew, and passes tracestate on.
	{"state", func(in, out http.Header) {
		out.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-"+someSpan+"-01")
		copying("tracestate")(in, out)
	}},
	{"forgetful", func(http.Header, http.Header) {}},
}

// relay answers what next answers to the same path; empty: 1. Where that fails it fails too.
func relay(t *testing.T, next string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if next == "" {
			_, _ = io.WriteString(w, "1")
			return
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+next+r.URL.Path, nil)
		if err != nil {
			t.Error(err)
			return
		}
		for _, known := range tracers {
			if r.URL.Path == "/"+known.name {
				known.forward(r.Header, out.Header)
			}
		}
		resp, err := client.Do(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// relays starts front, mid and back, of which each calls the next, and their sidecars. It
// returns a campaign with a request for each tracer.
func relays(t *testing.T, sidecar, more string) string {
	t.Helper()
	dir := t.TempDir()
	toMid, toBack, inbound := freeAddress(t), freeAddress(t), freeAddress(t)
	path := write(t, filepath.Join(dir, "topology.yaml"), fmt.Sprintf(`
services:
  - {name: front, sidecar: %[1]s, app: %[2]q, inbound: %[3]q, admin: %[4]q, calls: [{service: mid, listen: %[5]q}]}
  - {name: mid, sidecar: %[1]s, app: %[6]q, inbound: %[7]q, admin: %[8]q, calls: [{service: back, listen: %[9]q}]}
  - {name: back, sidecar: %[1]s, app: %[10]q, inbound: %[11]q, admin: %[12]q}
xds: %[13]q
otlp: %[14]q
%[15]s
`, sidecar, relay(t, toMid), inbound, freeAddress(t), toMid, relay(t, toBack), freeAddress(t), freeAddress(t), toBack,
		relay(t, ""), freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t), more))
	var steps strings.Builder
	for _, known := range tracers {
		fmt.Fprintf(&steps, "    - {name: %s, http: {url: \"http://%s/%s\"}}\n", known.name, inbound, known.name)
	}
	file := write(t, filepath.Join(dir, "campaign.yaml"),
		"name: relay\nworkload:\n  steps:\n"+steps.String()+"faults: {faults: [error], phases: [req], callees: [back]}\nbudget: {cleanRuns: 2}\n")
	top, err := topology.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range top.Services {
		if sidecar == topology.SidecarTFIProxy {
			runNative(t, path, s.Name)
			continue
		}
		r := call(t, "envoy", "bootstrap", s.Name, "--topology", path)
		r.expect(t, exitNothing)
		envoytest.Start(t, envoy.Options{Bootstrap: []byte(r.out), Admin: s.Admin, Name: s.Name})
	}
	return file
}

// TestPropagation runs a system whose services forward one trace header and no other, through
// real sidecars: with each kind of tracer the call at the second hop belongs to the trial, and
// the fault there fires.
func TestPropagation(t *testing.T) {
	for _, sidecar := range []string{topology.SidecarTFIProxy, topology.SidecarEnvoy} {
		t.Run(sidecar, func(t *testing.T) {
			var flags []string
			more := "\npolicy: " + freeAddress(t)
			if sidecar == topology.SidecarEnvoy {
				envoytest.Binary(t, envoy.Version)
				flags, more = []string{"--plugin", builtPlugin(t)}, ""
			}
			file := relays(t, sidecar, "traceHeader: x-trace"+more)
			remembered := len(tracers) - 1
			if sidecar == topology.SidecarTFIProxy { // an Envoy loads the plugin for each command
				known := fmt.Sprintf("%d calls, known by B3 or a 128-bit trace id or tracestate alone\n", remembered)
				call(t, "check", file).expect(t, exitNothing,
					"front → mid                      "+known, "mid → back                       "+known)
			}
			want := []string{fmt.Sprintf("%d trials (%d fired, 0 invalid)", remembered, remembered)}
			for _, known := range tracers[:remembered] {
				want = append(want, "Step "+known.name+": refused with HTTP 503", "GET /"+known.name+" (mid → back): error req")
			}
			out := filepath.Join(t.TempDir(), "out")
			// Three Envoys that compile the plugin at once take a minute where the machine is busy.
			callWithin(t, 5*time.Minute, append([]string{"run", file, "--out", out}, flags...)...).expect(t, exitNothing, want...)
		})
	}
}

// TestNarrowedPropagation: where requests carry one format only, those who know another lose
// the trial. All steps share B3's trace id, and yet each call counts to its own.
func TestNarrowedPropagation(t *testing.T) {
	file := relays(t, topology.SidecarTFIProxy, "policy: "+freeAddress(t)+"\npropagation: [b3multi]")
	call(t, "check", file).expect(t, exitNothing,
		fmt.Sprintf("client → front                   %d calls, known by B3\n", len(tracers)),
		"front → mid                      2 calls, known by B3\n", "mid → back                       2 calls, known by B3\n")
	// A POST that came through, whose answer is taken away, is an effect of its own step.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, strings.NewReplacer("phases: [req]", "phases: [req, resp]",
		"{name: b3multi, http: {", "{name: b3multi, http: {method: POST, ",
		"{name: b3of64, http: {", "{name: b3of64, http: {method: POST, ").Replace(string(text)))
	call(t, "run", file, "--out", filepath.Join(t.TempDir(), "out")).expect(t, exitFindings, "4 trials (4 fired, 0 invalid)",
		"Step b3multi: refused with HTTP 503, with nothing left behind", "Step b3of64: refused with HTTP 503, with nothing left behind",
		"Step b3multi: refused with HTTP 503, yet back POST /b3multi succeeded once and nothing undid it",
		"Step b3of64: refused with HTTP 503, yet back POST /b3of64 succeeded once and nothing undid it")
}

// TestForwardedFormats: check finds out what real sidecars' applications forward, and what it says
// to write into the topology passes.
func TestForwardedFormats(t *testing.T) {
	for _, sidecar := range []string{topology.SidecarTFIProxy, topology.SidecarEnvoy} {
		t.Run(sidecar, func(t *testing.T) {
			isEnvoy := sidecar == topology.SidecarEnvoy
			var flags []string
			more := "policy: " + freeAddress(t)
			if isEnvoy {
				envoytest.Binary(t, envoy.Version)
				flags, more = []string{"--plugin", builtPlugin(t)}, ""
			}
			dir := filepath.Dir(relays(t, sidecar, more))
			file, top := filepath.Join(dir, "campaign.yaml"), filepath.Join(dir, "topology.yaml")
			wide, err := os.ReadFile(top)
			if err != nil {
				t.Fatal(err)
			}
			inbound, err := topology.Load(top)
			if err != nil {
				t.Fatal(err)
			}
			check := func(propagation string, steps []string) result {
				text := "name: relay\nworkload:\n  steps:\n"
				for _, name := range steps {
					text += fmt.Sprintf("    - {name: %s, http: {url: \"http://%s/%s\"}}\n", name, inbound.Services[0].Inbound, name)
				}
				write(t, file, text)
				write(t, top, string(wide)+propagation)
				return callWithin(t, 5*time.Minute, append([]string{"check", file}, flags...)...)
			}
			const all = "survives over every edge above that was used\n"
			for _, tc := range []struct {
				steps, words []string
				// want is what to write, and fewer how many headers are left of five.
				want, fewer string
			}{
				{
					[]string{"b3multi"},
					[]string{"  w3c       lost over front → mid\n", "  b3        lost over front → mid\n", "  b3multi   " + all, "  jaeger    lost over front → mid\n"},
					"[b3multi]", "1 header",
				},
				{
					[]string{"w3c"},
					[]string{"  w3c       " + all, "  jaeger    lost over front → mid\n"},
					"[w3c]", "2 headers",
				},
				{
					[]string{"b3multi", "w3c"},
					[]string{"  w3c       lost over front → mid GET /b3multi, mid → back GET /b3multi\n", "  b3multi   lost over front → mid GET /w3c, mid → back GET /w3c\n", "  b3        lost over front → mid\n"},
					"[w3c, b3multi]", "3 headers",
				},
				// What it gets in any of two formats it sends in one.
				{
					[]string{"translating"},
					[]string{"  w3c       " + all, "  b3        " + all},
					map[string]string{topology.SidecarEnvoy: "[b3]", topology.SidecarTFIProxy: "[w3c]"}[sidecar], "1 header",
				},
			} {
				spared := "TFIProxies look for every one anyhow"
				if isEnvoy {
					spared = "Envoys then look for " + tc.fewer + " in every ordinary request instead of 5"
				}
				check("", tc.steps).expect(t, exitNothing, append(tc.words, "write `propagation: "+tc.want+"` into the topology: ", spared)...)
				again := check("propagation: "+tc.want+"\n", tc.steps)
				again.expect(t, exitNothing, "all is well")
				if several := len(tc.steps) > 1; strings.Contains(again.out, "trace formats") != several || several && !strings.Contains(again.out, "stays as it is: each of them is needed") {
					t.Errorf("where that is written:\n%s", again.out)
				}
			}
		})
	}
}

// TestOwnHeaderInACampaign: every command that reads a campaign refuses the header that the
// topology has sequencefi set.
func TestOwnHeaderInACampaign(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}]\ntraceHeader: x-trace\nxds: "+freeAddress(t)+"\notlp: "+freeAddress(t)+"\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"),
		"name: a\nworkload: {steps: [{http: {url: \"http://127.0.0.1:1/\", headers: {X-Trace: \"1\"}}}]}\n")
	for _, command := range []string{"check", "plan", "run"} {
		args := []string{command, file, "--plugin", plugin(t, dir), "--wait", "50ms"}
		if command == "run" {
			args = append(args, "--out", filepath.Join(dir, "out"))
		}
		call(t, args...).expect(t, exitUsage, `workload.steps[0].http.headers["X-Trace"]: must be left out: it is the topology's traceHeader`)
	}
}

// builtPlugin builds the plugin.
func builtPlugin(t *testing.T) string {
	t.Helper()
	module := filepath.Join(t.TempDir(), pluginName)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags", "-s -w",
		"-o", module, "github.com/sequencefi/sequencefi/plugin/wasm/cmd/plugin")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return module
}
