package workload

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/workload/workloadtest"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

func shell(script string) *campaignv1.Step {
	return &campaignv1.Step{Action: &campaignv1.Step_Command{Command: &campaignv1.Command{
		Argv: []string{"/bin/sh", "-c", script}, Env: map[string]string{"EXTRA": "yes"},
	}}}
}

func runStep(t *testing.T, s *campaignv1.Step) *Result {
	t.Helper()
	result, err := compile(t, &campaignv1.Workload{Steps: []*campaignv1.Step{s}}).Run(t.Context(), Trial{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestCommandOutcomes(t *testing.T) {
	result := runStep(t, shell(`echo "$TRACEPARENT $TRACESTATE $SEQUENCEFI_TRIAL_ID $EXTRA"; exit 3`))
	a := result.Answers[0]
	if a.ExitCode != 3 || a.Error != "" {
		t.Errorf("exit code %d, error %q, want 3 and none", a.ExitCode, a.Error)
	}
	if len(result.Traces) != 1 {
		t.Fatalf("traces are %v", result.Traces)
	}
	out := string(a.Whole)
	if !strings.HasPrefix(out, "00-"+result.Traces[0].String()+"-") || !strings.Contains(out, " sfi=01020304050607 01020304050607 yes") {
		t.Errorf("the command saw %q", out)
	}

	// A child that outlives its parent must end with it, or the trial would not end.
	slow := shell("sleep 60 & sleep 60")
	slow.GetCommand().Timeout = durationpb.New(100 * time.Millisecond)
	start := time.Now()
	if a := runStep(t, slow).Answers[0]; a.Error != ErrorTimeout {
		t.Errorf("error is %q, want a timeout", a.Error)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the command ended after %s", took)
	}
	if a := runStep(t, shell("kill -ABRT $$")).Answers[0]; !strings.HasPrefix(a.Error, "killed by") {
		t.Errorf("error is %q, want a signal", a.Error)
	}
	if a := runStep(t, &campaignv1.Step{Action: &campaignv1.Step_Command{Command: &campaignv1.Command{
		Argv: []string{"/nonexistent/program"},
	}}}).Answers[0]; a.Error == "" {
		t.Error("a program that is not there gives no error")
	}
}

// TestCommandLeavesNothingRunning has a command that ends before what it started.
func TestCommandLeavesNothingRunning(t *testing.T) {
	a := runStep(t, shell(`sleep 300 >/dev/null 2>&1 & echo $!`)).Answers[0]
	if a.Error != "" || a.ExitCode != 0 {
		t.Errorf("exit code %d, error %q", a.ExitCode, a.Error)
	}
	stat := "/proc/" + strings.TrimSpace(string(a.Whole)) + "/stat"
	deadline := time.Now().Add(10 * time.Second)
	for {
		// One that waits for its parent to take note has ended.
		line, err := os.ReadFile(stat)
		if err != nil || strings.Contains(string(line), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still running: %s", line)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestProxyStopped asks a proxy for a tunnel at the moment at which it stops.
func TestProxyStopped(t *testing.T) {
	p, err := startProxy(t.Context(), &traceContext{key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
	late := httptest.NewServer(p)
	defer late.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", late.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	target := late.Listener.Addr().String()
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); len(got) > 0 || err != nil {
		t.Errorf("a proxy that was stopped opened a tunnel: %q %v", got, err)
	}
}

// TestProxyChild is not a test: it is the command of TestCommandProxy.
func TestProxyChild(t *testing.T) {
	c := workloadtest.NewClient(t)
	for _, trace := range []string{"", os.Getenv("TRACEPARENT"), "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"} {
		if err := c.Get(c.Target, "traceparent", trace); err != nil {
			t.Fatal(err)
		}
	}
	// The certificate is not ours to judge; that bytes arrive is enough.
	if err := c.Get(os.Getenv("TLS_TARGET"), "", ""); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the tunnel gave %v, want a certificate error", err)
	}
}

func TestCommandProxy(t *testing.T) {
	var got seen
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.add(r, "") }))
	defer server.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = nil

	step := workloadtest.Command("TestProxyChild", server.URL, map[string]string{"TLS_TARGET": secure.URL})
	result := runStep(t, step)
	if a := result.Answers[0]; a.ExitCode != 0 || a.Error != "" {
		t.Fatalf("the command failed: %d %s\n%s", a.ExitCode, a.Error, a.Whole)
	}
	if len(got.headers) != 3 {
		t.Fatalf("%d requests arrived, want 3", len(got.headers))
	}
	for i := range 2 {
		if stamp := got.headers[i].Get("traceparent"); !strings.Contains(stamp, result.Traces[0].String()) {
			t.Errorf("request %d has traceparent %q", i, stamp)
		}
	}
	all := everyFormat(t, got.headers[0].Get("traceparent"))
	delete(all, "x-trace")
	if diff := cmp.Diff(all, traceHeaders(got.headers[0])); diff != "" {
		t.Errorf("a request without trace context: -want +got:\n%s", diff)
	}
	if state := got.headers[2].Get("tracestate"); state != "sfi=01020304050607" {
		t.Errorf("a trace of the command's own has tracestate %q", state)
	}
	if stamp := got.headers[2].Get("traceparent"); !strings.HasPrefix(stamp, "00-0123") {
		t.Errorf("a trace of the command's own was rewritten to %q", stamp)
	}
	if text := fmt.Sprint(result.Traces[1:]); text != "[0123456789abcdef0123456789abcdef]" {
		t.Errorf("the command's own traces are %s", text)
	}
	if diff := cmp.Diff([]Unmarked{{Tunnels: 1}}, result.Unmarked); diff != "" {
		t.Errorf("requests that could not be marked: -want +got:\n%s", diff)
	}
}

// TestProxyChangesNothingElse sends requests by hand: but for trace headers, and what is between a
// client and its proxy, they arrive as they are.
func TestProxyChangesNothingElse(t *testing.T) {
	type arrived struct {
		Method, Target, Host, Body string
		Header                     http.Header
	}
	var got arrived
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = arrived{r.Method, r.RequestURI, r.Host, string(body), r.Header}
	}))
	defer server.Close()
	p, err := startProxy(t.Context(), &traceContext{key: testKey, span: SpanID{7: 1}, format: Propagation{Formats: []string{topology.FormatB3}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	host := server.Listener.Addr().String()
	for _, target := range []string{
		"/?a=1;b=2&c=%zz&d=4", "/", "/a%2Fb|c//d/../e%41?", "//a/b?x=//y", "/a:b@c;d=e,f", "/?next=http://other/?q",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "POST http://%s%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\nConnection: close\r\n"+
			"Forwarded: for=1.2.3.4\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8\r\nX-Forwarded-Host: shop\r\nX-Forwarded-Proto: https\r\n"+
			"Traceparent: mine\r\n\r\nhi", host, target, host); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if diff := cmp.Diff(arrived{http.MethodPost, target, host, "hi", http.Header{
			"Content-Length": {"2"}, "Connection": {"close"}, "Forwarded": {"for=1.2.3.4"}, "X-Forwarded-For": {"1.2.3.4", "5.6.7.8"},
			"X-Forwarded-Host": {"shop"}, "X-Forwarded-Proto": {"https"}, "Traceparent": {"mine"},
			"B3": {"5f1c010203040506-0000000000000001-1"},
		}}, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", target, diff)
		}
	}
}
