package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

var testKey = Key{1, 2, 3, 4, 5, 6, 7}

func get(name, url string) *campaignv1.Step {
	return &campaignv1.Step{Name: name, Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{Url: url}}}
}

func compile(t *testing.T, spec *campaignv1.Workload) *Workload {
	t.Helper()
	w, err := Compile(spec, Propagation{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// seen records requests.
type seen struct {
	mu       sync.Mutex
	requests []string
	headers  []http.Header
}

func (s *seen) add(r *http.Request, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+body))
	s.headers = append(s.headers, r.Header.Clone())
}

func TestSequenceStampsAndCaptures(t *testing.T) {
	var got seen
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body strings.Builder
		if r.ContentLength > 0 {
			buf := make([]byte, r.ContentLength)
			_, _ = r.Body.Read(buf)
			body.Write(buf)
		}
		got.add(r, body.String())
		if r.URL.Path == "/carts" {
			w.Header().Set("Location", "http://"+r.Host+"/carts/a%20b")
			_ = json.NewEncoder(w).Encode(map[string]any{"id": "a b/c", "n": 3})
		}
	}))
	defer server.Close()

	w := compile(t, &campaignv1.Workload{
		Before: []*campaignv1.Step{get("reset", server.URL+"/reset?who=${trial.id}")},
		Steps: []*campaignv1.Step{
			{Name: "cart", Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{
				Method: "POST", Url: server.URL + "/carts", Body: `{"user":"${trial.id}"}`,
				Headers: map[string]string{"x-user": "${trial.id}"},
				Capture: map[string]string{"cart": "answer.json.id", "n": "answer.json.n", "at": "answer.headers.location"},
			}}},
			get("", server.URL+"/carts/${cart}?n=${n}"),
			get("", "${at}"),
		},
		After: []*campaignv1.Step{get("probe", server.URL+"/orders?cart=${cart}")},
	})
	trial := Trial{Key: testKey}
	result, err := w.Run(t.Context(), trial)
	if err != nil {
		t.Fatal(err)
	}
	probes, err := w.Probe(t.Context(), trial, result)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GET /reset?who=01020304050607",
		`POST /carts {"user":"01020304050607"}`,
		"GET /carts/a%20b%2Fc?n=3",
		"GET /carts/a%20b",
		"GET /orders?cart=a%20b%2Fc",
	}
	for i, request := range want {
		if i >= len(got.requests) || got.requests[i] != request {
			t.Fatalf("requests are %q, want %q", got.requests, want)
		}
		stamp := got.headers[i].Get("traceparent")
		if stamped := i >= 1 && i <= 3; stamped != strings.HasPrefix(stamp, "00-5f1c01020304050607") {
			t.Errorf("request %d has traceparent %q, stamped should be %v", i, stamp, stamped)
		}
		if stamp != "" && !strings.HasSuffix(stamp, "-01") {
			t.Errorf("request %d is not sampled: %q", i, stamp)
		}
	}
	if user := got.headers[1].Get("x-user"); user != "01020304050607" {
		t.Errorf("x-user is %q", user)
	}
	if len(result.Traces) != 3 || len(probes) != 1 || probes[0].Step != "probe" {
		t.Errorf("%d traces and probes %v, want 3 and one", len(result.Traces), probes)
	}
	if names := fmt.Sprint(w.Steps()); names != "[cart 3 4]" {
		t.Errorf("steps are named %s", names)
	}
	for i, id := range result.Traces {
		if !strings.Contains(got.headers[i+1].Get("traceparent"), id.String()) {
			t.Errorf("trace %s was not sent with step %d", id, i)
		}
	}
}

func TestRunStopsWhereToldAndReportsMissingValues(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	w := compile(t, &campaignv1.Workload{Steps: []*campaignv1.Step{
		{Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{
			Url: server.URL, Capture: map[string]string{"id": "answer.json.id"},
		}}},
		get("", server.URL+"/${id}"),
	}})
	result, err := w.Run(t.Context(), Trial{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Answers) != 2 || !strings.Contains(result.Answers[1].Error, "${id}: not captured") {
		t.Errorf("answers are %v", result.Answers)
	}
	result, err = w.Run(t.Context(), Trial{Key: testKey, Continue: func(_ int, a Answer) bool { return a.Status < 400 }})
	if err != nil || len(result.Answers) != 1 {
		t.Errorf("the run went on after a refusal: %v %v", result, err)
	}
}

func TestErrorClasses(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/half":
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("half"))
		case "/redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	}))
	defer server.Close()
	defer close(hang)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + closed.Addr().String()
	_ = closed.Close()

	for url, want := range map[string]string{
		server.URL + "/hang":     "0 timeout",
		server.URL + "/abort":    "0 reset",
		server.URL + "/half":     "200 reset",
		server.URL + "/redirect": "302 ",
		nobody:                   "0 refused",
	} {
		t.Run(url[strings.LastIndex(url, "/"):], func(t *testing.T) {
			step := get("", url)
			step.GetHttp().Timeout = durationpb.New(300 * time.Millisecond)
			w := compile(t, &campaignv1.Workload{Steps: []*campaignv1.Step{step}})
			result, err := w.Run(t.Context(), Trial{Key: testKey})
			if err != nil {
				t.Fatal(err)
			}
			a := result.Answers[0]
			if got := fmt.Sprintf("%d %s", a.Status, a.Error); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestLongBodyIsCutForTheReportOnly(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, MaxBody+1))
	}))
	defer server.Close()
	w := compile(t, &campaignv1.Workload{Steps: []*campaignv1.Step{get("", server.URL)}})
	result, err := w.Run(t.Context(), Trial{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	a := result.Answers[0]
	if !a.BodyTruncated || len(a.Body) != MaxBody || len(a.Whole) != MaxBody+1 {
		t.Errorf("cut %v, %d bytes kept, %d read", a.BodyTruncated, len(a.Body), len(a.Whole))
	}
}

func TestAnyBytesInHeaders(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Name", "Ren\xe9e")
	}))
	defer server.Close()
	w := compile(t, &campaignv1.Workload{Steps: []*campaignv1.Step{get("", server.URL)}})
	result, err := w.Run(t.Context(), Trial{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	a := result.Answers[0]
	if got := a.GetHeaders()["x-name"]; got != "Ren\ufffde" {
		t.Errorf("the header is %q", got)
	}
	if _, err := proto.Marshal(a.Answer); err != nil {
		t.Errorf("no report can hold it: %v", err)
	}
}

func TestResetFailureAndCancelledRun(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer server.Close()
	w := compile(t, &campaignv1.Workload{
		Before: []*campaignv1.Step{get("reset", server.URL)},
		Steps:  []*campaignv1.Step{get("", server.URL)},
	})
	if _, err := w.Run(t.Context(), Trial{Key: testKey}); !errors.Is(err, ErrBefore) {
		t.Errorf("got %v, want ErrBefore", err)
	}
	w.before = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Run(ctx, Trial{Key: testKey}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestCompileListsAllProblems(t *testing.T) {
	_, err := Compile(&campaignv1.Workload{Steps: []*campaignv1.Step{
		{Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{
			Url: "ftp://x", Capture: map[string]string{"a": "answer.", "b": "nobody.x"},
		}}},
		get("", "http://x/${nothing}"),
	}}, Propagation{})
	if !errors.Is(err, valid.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	for _, path := range []string{
		"steps[0].http.url", `steps[0].http.capture["a"]`, `steps[0].http.capture["b"]`, "steps[1].http.url",
	} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s is not among the problems: %v", path, err)
		}
	}
}
