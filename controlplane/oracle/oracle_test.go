package oracle

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/workload"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// answer makes a JSON answer; a body that is no JSON is text.
func answer(status uint32, body string) workload.Answer {
	media := "application/json"
	if !strings.HasPrefix(body, "{") && !strings.HasPrefix(body, "[") && body != "null" {
		media = "text/plain; charset=utf-8"
	}
	return workload.Answer{Whole: []byte(body), Answer: &campaignv1.Answer{
		Step: "1", Status: status, Headers: map[string]string{"content-type": media}, Body: []byte(body),
	}}
}

func broken(text string) workload.Answer {
	return workload.Answer{Answer: &campaignv1.Answer{Step: "1", Error: text, Duration: durationpb.New(time.Second)}}
}

func run(a workload.Answer, calls ...Call) Observation {
	return Observation{Answers: []workload.Answer{a}, Calls: calls}
}

func ok(service, api string) Call { return Call{Service: service, API: api, Succeeded: true} }

func failed(service, api string) Call { return Call{Service: service, API: api} }

func oracle(t *testing.T, spec *campaignv1.Oracle) *Oracle {
	t.Helper()
	o, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func learn(t *testing.T, o *Oracle, runs ...Observation) *Baseline {
	t.Helper()
	b, err := o.Learn(t.Context(), runs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// text puts a signature into one line.
func text(s *campaignv1.OutcomeSignature) string {
	class := strings.ToLower(strings.TrimPrefix(s.GetClass().String(), "OUTCOME_CLASS_"))
	parts := []string{class, strings.Join(s.GetAnswers(), " ")}
	for _, list := range [][]string{s.GetShape(), s.GetEffects(), s.GetProbes(), s.GetInvariants()} {
		parts = append(parts, list...)
	}
	return strings.Join(parts, " | ")
}

func TestShape(t *testing.T) {
	tests := []struct {
		name  string
		clean []string
		trial string
		want  string
	}{
		{"values vary", []string{`{"a":1}`, `{"a":2}`}, `{"a":30}`, "clean | success"},
		{"values that never varied", []string{`{"a":1}`, `{"a":1}`}, `{"a":2}`, "clean | success"},
		{"null for an object", []string{`{"a":1}`}, `null`, "finding | success | 1: $: was object, is null"},
		{"null for an array", []string{`[{"a":1}]`}, `null`, "finding | success | 1: $: was array of 1 object, is null"},
		{"type", []string{`{"a":{"b":1}}`}, `{"a":{"b":"x"}}`, "finding | success | 1: $.a.b: was number, is string"},
		{"either type", []string{`{"a":1}`, `{"a":null}`}, `{"a":"x"}`, "finding | success | 1: $.a: was null or number, is string"},
		{"member absent", []string{`{"a":1,"b":2}`}, `{"a":1}`, "finding | success | 1: $.b: was number, is absent"},
		{"member added", []string{`{"a":1}`}, `{"a":1,"error":"x"}`, "finding | success | 1: $.error: was absent, is string"},
		{"optional member", []string{`{"a":1,"b":2}`, `{"a":1}`}, `{"a":1}`, "clean | success"},
		{"map with keys of its own", []string{`{"x1":{"a":1}}`, `{"x2":{"a":1}}`}, `{"x3":{"a":1}}`, "clean | success"},
		{"constant length", []string{`[1,2,3]`, `[4,5,6]`}, `[7,8]`, "finding | success | 1: $: was array, is array with items missing"},
		{"constant length, more", []string{`[1,2,3]`, `[4,5,6]`}, `[7,8,9,9]`, "finding | success | 1: $: was array, is array with items added"},
		{"varying length", []string{`[1,2,3]`, `[4]`}, `[7,8,9,10]`, "clean | success"},
		{"empty array", []string{`[1,2,3]`, `[4]`}, `[]`, "finding | success | 1: $: was non-empty array, is empty array"},
		{"array never filled", []string{`[]`}, `[1]`, "finding | success | 1: $: was empty array, is non-empty array"},
		{"elements are one place", []string{`[{"a":1},{"a":2}]`}, `[{"a":"x"},{"a":"y"}]`, "finding | success | 1: $[*].a: was number, is string"},
		{"empty string", []string{`{"a":"x"}`}, `{"a":""}`, "finding | success | 1: $.a: was non-empty string, is empty string"},
		{"string may be empty", []string{`{"a":"x"}`, `{"a":""}`}, `{"a":""}`, "clean | success"},
		{"JSON no more", []string{`{"a":1}`}, `oops`, "finding | success | 1: $: was object, is not JSON"},
		{"empty body", []string{`{"a":1}`}, ``, "finding | success | 1: $: was object, is an empty body"},
		{"text", []string{`hello`}, `other words`, "clean | success"},
		{"text to JSON", []string{`hello`}, `{"a":1}`, "finding | success | 1: $: was text/plain, is application/json"},
		{"odd member names", []string{`{"a.b":1}`}, `{"a.b":null}`, `finding | success | 1: $["a.b"]: was number, is null`},
		{"ignored member", []string{`{"skip":{"x":1},"a":1}`}, `{"skip":{"x":null},"a":1}`, "clean | success"},
		{"ignored element", []string{`{"l":[{"id":1}]}`}, `{"l":[{"id":null}]}`, "clean | success"},
		{"ignored absence", []string{`{"skip":1}`}, `{}`, "clean | success"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := oracle(t, &campaignv1.Oracle{Ignore: []string{"$.skip", "$.l[*].id"}})
			var runs []Observation
			for _, body := range tt.clean {
				runs = append(runs, run(answer(200, body)))
			}
			b := learn(t, o, runs...)
			if got := text(b.Judge(t.Context(), run(answer(200, tt.trial)))); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			for i, clean := range runs {
				if s := b.Judge(t.Context(), clean); s.GetClass() != classClean {
					t.Errorf("clean run %d is judged %s", i, text(s))
				}
			}
		})
	}
}

func TestAnswersAndEffects(t *testing.T) {
	const charge, refund, order = "POST /charge", "POST /refund", "PUT /orders/{id}"
	clean := run(answer(200, `{"id":1}`), ok("pay", charge), ok("shop", order), ok("stock", "GET /items"), ok("mail", "Mail/Send"), ok("mail", "Mail/GetTemplate"))
	good := answer(200, `{"id":2}`)
	refused := answer(500, "sorry")
	tests := []struct {
		name  string
		trial Observation
		want  string
	}{
		{"clean", run(good, clean.Calls...), "clean | success"},
		{"refusal, nothing left", run(refused, failed("pay", charge)), "degraded | refusal"},
		{"refusal, reads are no effect", run(refused, ok("stock", "GET /items"), ok("mail", "Mail/GetTemplate")), "degraded | refusal"},
		{"refusal with an effect", run(refused, ok("pay", charge)), "finding | refusal | +1 pay POST /charge"},
		{"refusal with an effect undone", run(refused, ok("pay", charge), ok("pay", refund)), "degraded | refusal | pay POST /charge taken as undone by POST /refund"},
		{"one refund of two charges", run(refused, ok("pay", charge), ok("pay", charge), ok("pay", refund)), "finding | refusal | pay POST /charge taken as undone by POST /refund | +1 pay POST /charge"},
		{"two refunds of two charges", run(refused, ok("pay", charge), ok("pay", charge), ok("pay", refund), ok("pay", refund)), "degraded | refusal | pay POST /charge taken as undone by POST /refund 2 times"},
		{"a refund of nothing", run(refused, ok("pay", refund), ok("pay", charge)), "finding | refusal | +1 pay POST /charge | +1 pay POST /refund"},
		{"what no clean run makes, twice", run(refused, ok("pay", refund), ok("pay", refund)), "finding | refusal | +2 pay POST /refund"},
		{"a refund that failed", run(refused, ok("pay", charge), failed("pay", refund)), "finding | refusal | +1 pay POST /charge"},
		{"a second charge is no refund", run(refused, ok("pay", charge), ok("pay", charge)), "finding | refusal | +2 pay POST /charge"},
		{"a refund elsewhere", run(refused, ok("pay", charge), ok("bank", refund)), "finding | refusal | +1 bank POST /refund | +1 pay POST /charge"},
		{"refusal with a doubtful effect", run(refused, ok("mail", "Mail/Send")), "suspected | refusal | ? +1 mail Mail/Send"},
		{"twice", run(good, append([]Call{ok("pay", charge)}, clean.Calls...)...), "finding | success | +1 pay POST /charge"},
		{"tried twice, succeeded once", run(good, append([]Call{failed("pay", charge)}, clean.Calls...)...), "clean | success"},
		{"lost effect", run(good, ok("pay", charge), ok("mail", "Mail/Send")), "finding | success | -1 shop PUT /orders/{id}"},
		{"lost doubtful effect", run(good, ok("pay", charge), ok("shop", order)), "suspected | success | ? -1 mail Mail/Send"},
		{"the workload's own call is the answer", run(refused, Call{Service: "front", API: "POST /buy", Entry: true}), "degraded | refusal"},
		{"time-out", run(broken("timeout")), "finding | timeout"},
		{"crash", run(broken("reset")), "finding | crash"},
		{"the proxy had to answer", run(answer(503, "x"), Call{Entry: true, Broken: true}), "finding | crash"},
		{"another status of success", run(answer(202, `{"id":2}`), clean.Calls...), "clean | success"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := learn(t, oracle(t, nil), clean, clean)
			if got := text(b.Judge(t.Context(), tt.trial)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestUndone: whoever reads only the sentence learns what was taken for compensation.
func TestUndone(t *testing.T) {
	const charge, note = "POST /charge", "POST /note"
	o := oracle(t, nil)
	clean := run(answer(200, `{}`), ok("payment", charge))
	trial := run(answer(502, "x"), ok("payment", charge), ok("payment", note))
	twice := run(answer(502, "x"), ok("payment", charge), ok("payment", charge), ok("payment", note))
	probe := []workload.Answer{answer(200, `{"charged":0}`)}
	probed, err := o.Learn(t.Context(), []Observation{clean}, probe)
	if err != nil {
		t.Fatal(err)
	}
	proven := trial
	proven.Probes = probe
	const advice = " (a probe of the state, in workload.after, would prove it)."
	for _, tt := range []struct {
		name     string
		baseline *Baseline
		trial    Observation
		want     string
	}{
		{"all", learn(t, o, clean), trial, "Refused with HTTP 502; payment POST /charge taken as undone by POST /note" + advice},
		{"one of two", learn(t, o, clean), twice, "Refused with HTTP 502, yet payment POST /charge succeeded once and nothing undid it; payment POST /charge taken as undone by POST /note" + advice},
		{"with a probe", probed, proven, "Refused with HTTP 502; payment POST /charge taken as undone by POST /note."},
	} {
		if got := tt.baseline.Judge(t.Context(), tt.trial).GetSummary(); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
	if a, b := learn(t, o, clean).Judge(t.Context(), trial), learn(t, o, clean).Judge(t.Context(), run(answer(502, "x"))); a.GetId() == b.GetId() {
		t.Error("a refusal after something undone is the outcome of one after nothing")
	}
}

// TestWhichIsUndone: one call undoes one effect, the one that it names or else the last.
func TestWhichIsUndone(t *testing.T) {
	const charge, order = "POST /charge", "PUT /orders/{id}"
	b := learn(t, oracle(t, nil), run(answer(200, `{}`), ok("pay", charge), ok("pay", order)))
	for undo, want := range map[string]string{
		"POST /refund":            "finding | refusal | pay PUT /orders/{id} taken as undone by POST /refund | +1 pay POST /charge",
		"POST /charges/{id}/void": "finding | refusal | pay POST /charge taken as undone by POST /charges/{id}/void | +1 pay PUT /orders/{id}",
		"DELETE /charge":          "finding | refusal | pay POST /charge taken as undone by DELETE /charge | +1 pay PUT /orders/{id}",
		"DELETE /orders/{id}":     "finding | refusal | pay PUT /orders/{id} taken as undone by DELETE /orders/{id} | +1 pay POST /charge",
		"POST /charger":           "finding | refusal | pay PUT /orders/{id} taken as undone by POST /charger | +1 pay POST /charge",
		"Pay/Refund":              "finding | refusal | pay PUT /orders/{id} taken as undone by Pay/Refund | +1 pay POST /charge",
	} {
		trial := run(answer(500, "x"), ok("pay", charge), ok("pay", order), ok("pay", undo))
		if got := text(b.Judge(t.Context(), trial)); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", undo, got, want)
		}
	}
}

// TestHarmlessUndoesNothing: what is listed as harmless is no compensation either.
func TestHarmlessUndoesNothing(t *testing.T) {
	b := learn(t, oracle(t, &campaignv1.Oracle{Harmless: []string{"POST /note"}}), run(answer(200, `{}`), ok("pay", "POST /charge")))
	trial := run(answer(502, "x"), ok("pay", "POST /charge"), ok("pay", "POST /note"))
	if got := text(b.Judge(t.Context(), trial)); got != "finding | refusal | +1 pay POST /charge" {
		t.Error(got)
	}
}

// TestUndoesHarmless: what undoes a call that is listed as harmless is no effect, as it
// would be none if that were not listed.
func TestUndoesHarmless(t *testing.T) {
	const charge, void = "POST /charge", "POST /charges/{id}/void"
	o := oracle(t, &campaignv1.Oracle{Harmless: []string{charge, "Pay/Charge"}})
	b := learn(t, o, run(answer(200, `{}`), ok("pay", charge), ok("pay", "Pay/Charge"), ok("pay", "PUT /orders/{id}")))
	for _, tt := range []struct {
		name, want, summary string
		calls               []Call
	}{
		{
			"undone", "degraded | refusal | pay POST /charge taken as undone by POST /charges/{id}/void", "",
			[]Call{ok("pay", charge), ok("pay", void)},
		},
		{
			"twice for one", "finding | refusal | pay POST /charge taken as undone by POST /charges/{id}/void | +1 pay POST /charges/{id}/void", "",
			[]Call{ok("pay", charge), ok("pay", void), ok("pay", void)},
		},
		{"before it", "finding | refusal | +1 pay POST /charges/{id}/void", "", []Call{ok("pay", void), ok("pay", charge)}},
		{"at another service", "finding | refusal | +1 bank POST /charges/{id}/void", "", []Call{ok("pay", charge), ok("bank", void)}},
		{
			"what it names, not the effect", "finding | refusal | pay POST /charge taken as undone by POST /charges/{id}/void | +1 pay PUT /orders/{id}", "",
			[]Call{ok("pay", "PUT /orders/{id}"), ok("pay", charge), ok("pay", void)},
		},
		{
			"the effect, where it does not name the harmless one", "degraded | refusal | pay PUT /orders/{id} taken as undone by POST /cancel", "",
			[]Call{ok("pay", "PUT /orders/{id}"), ok("pay", charge), ok("pay", "POST /cancel")},
		},
		{
			"an effect that does not name it", "finding | refusal | +1 pay POST /reserve",
			"Refused with HTTP 502, yet pay POST /reserve succeeded once and nothing undid it (if it undoes POST /charge, list it under oracle.harmless as well).",
			[]Call{ok("pay", charge), ok("pay", "POST /reserve")},
		},
		{
			"gRPC", "suspected | refusal | ? +1 pay Pay/Void",
			"Refused with HTTP 502, yet pay Pay/Void succeeded once and nothing undid it (if it undoes Pay/Charge, list it under oracle.harmless as well).",
			[]Call{ok("pay", "Pay/Charge"), ok("pay", "Pay/Void")},
		},
	} {
		s := b.Judge(t.Context(), run(answer(502, "x"), tt.calls...))
		if got := text(s); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		if tt.summary != "" && s.GetSummary() != tt.summary {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, s.GetSummary(), tt.summary)
		}
	}
}

func TestAnnotations(t *testing.T) {
	clean := run(answer(200, `{}`), ok("mail", "Mail/Send"), ok("a", "POST /search"))
	b := learn(t, oracle(t, &campaignv1.Oracle{StateChanging: []string{"Mail/Send"}, Harmless: []string{"POST /search"}}), clean)
	if got := text(b.Judge(t.Context(), run(answer(200, `{}`)))); got != "finding | success | -1 mail Mail/Send" {
		t.Error(got)
	}
}

func TestReadingVerbs(t *testing.T) {
	for api, want := range map[string]certainty{
		"shop.Cart/GetCart": harmless, "Geo/Get": harmless, "a.B/FindNearest": harmless, "a.B/Getaway": unknown,
		"a.B/Checkout": unknown, "a.B/Charge": unknown, "grpc.health.v1.Health/Check": harmless,
		"GET /x": harmless, "HEAD /x": harmless, "POST /x": changing, "DELETE /x": changing, "PATCH /x": changing,
	} {
		if got := oracle(t, nil).certainty(api); got != want {
			t.Errorf("%s is %d, want %d", api, got, want)
		}
	}
}

func TestMaxDuration(t *testing.T) {
	o := oracle(t, &campaignv1.Oracle{MaxDuration: durationpb.New(time.Second)})
	slow := answer(200, `{}`)
	slow.Duration = durationpb.New(2 * time.Second)
	b := learn(t, o, run(answer(200, `{}`)))
	s := b.Judge(t.Context(), run(slow))
	if text(s) != "finding | timeout" || !strings.Contains(s.GetSummary(), "only after 2s") {
		t.Errorf("%s: %s", text(s), s.GetSummary())
	}
}

func TestProbes(t *testing.T) {
	probe := func(body string) []workload.Answer {
		a := answer(200, body)
		a.Step = "orders"
		return []workload.Answer{a}
	}
	o := oracle(t, nil)
	clean := Observation{Answers: []workload.Answer{answer(200, `{}`)}, Probes: probe(`{"count":1,"at":17}`)}
	other := Observation{Answers: clean.Answers, Probes: probe(`{"count":1,"at":18}`)}
	b, err := o.Learn(t.Context(), []Observation{clean, other}, probe(`{"count":0,"at":1}`))
	if err != nil {
		t.Fatal(err)
	}
	refused := []workload.Answer{answer(500, "no")}
	tests := []struct {
		name  string
		trial Observation
		want  string
	}{
		{"as clean", Observation{Answers: clean.Answers, Probes: probe(`{"count":1,"at":99}`)}, "clean | success"},
		{"success, another value", Observation{Answers: clean.Answers, Probes: probe(`{"count":2,"at":99}`)}, "finding | success | orders: $.count: was 1, is 2"},
		{"refused, as idle", Observation{Answers: refused, Probes: probe(`{"count":0,"at":1}`)}, "degraded | refusal"},
		{"refused, as clean", Observation{Answers: refused, Probes: probe(`{"count":1,"at":1}`)}, "finding | refusal | orders: $.count: was 0, is 1"},
		{"probe refused", Observation{Answers: clean.Answers, Probes: []workload.Answer{answer(500, "")}}, "finding | success | 1: refused with HTTP 500"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(b.Judge(t.Context(), tt.trial)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestInvariants(t *testing.T) {
	o := oracle(t, &campaignv1.Oracle{Invariants: []*campaignv1.Invariant{
		{Name: "total", Cel: `answer.status != 200 || answer.json.total == 3.0`},
		{Name: "named", Cel: `answers["1"].status < 600`},
		{Name: "once", Cel: `trace.filter(e, e.api == "POST /pay" && e.role == "server" && e.phase == "resp" && e.outcome == "success").size() <= 1`},
	}})
	event := &campaignv1.Event{
		Op:      &tfiv1.Op{Api: "POST /pay", Role: tfiv1.Role_ROLE_SERVER, Phase: tfiv1.Phase_PHASE_RESP},
		Outcome: tfiv1.Outcome_OUTCOME_SUCCESS,
	}
	clean := run(answer(200, `{"total":3}`))
	b := learn(t, o, clean)
	trial := run(answer(200, `{"total":4}`))
	trial.Events = []*campaignv1.Event{event, event}
	if got := text(b.Judge(t.Context(), trial)); got != "finding | success | total | once" {
		t.Error(got)
	}
	if got := text(b.Judge(t.Context(), run(answer(503, "x")))); got != "degraded | refusal" {
		t.Error(got)
	}
	if _, err := o.Learn(t.Context(), []Observation{run(answer(200, `{}`))}, nil); !errors.Is(err, ErrInvariant) {
		t.Errorf("got %v, want ErrInvariant", err)
	}
}

// TestInvariantsNotEvaluated: what cannot be looked at is not violated.
func TestInvariantsNotEvaluated(t *testing.T) {
	o := oracle(t, &campaignv1.Oracle{Invariants: []*campaignv1.Invariant{
		{Name: "charged once", Cel: `probes.charges.json.size() <= 1`},
		{Name: "charges are told", Cel: `probes.charges.status == 200`},
		{Name: "total", Cel: `answer.status >= 500 || answer.json.total == 3`},
	}})
	probe := answer(200, `[1]`)
	probe.Step = "charges"
	clean := Observation{Answers: []workload.Answer{answer(200, `{"total":3}`)}, Probes: []workload.Answer{probe}}
	b := learn(t, o, clean)
	unsent := workload.Answer{Unsent: true, Answer: &campaignv1.Answer{Step: "charges", Error: "${order}: not captured"}}
	twice := answer(200, `[1,1]`)
	twice.Step = "charges"
	for _, tt := range []struct {
		name          string
		trial         Observation
		want, summary string
	}{
		{
			name:    "probe not sent",
			trial:   Observation{Answers: []workload.Answer{answer(503, "x")}, Probes: []workload.Answer{unsent}},
			want:    "suspected | refusal | ? charged once | ? charges are told",
			summary: `Refused with HTTP 503, with nothing left behind. The invariant "charged once" could not be evaluated: the probe charges was not sent: ${order}: not captured.`,
		},
		{
			name:    "probe not sent after a success",
			trial:   Observation{Answers: clean.Answers, Probes: []workload.Answer{unsent}},
			want:    "suspected | success | ? charges: not sent | ? charged once | ? charges are told",
			summary: "The probe charges was not sent: ${order}: not captured.",
		},
		{
			name:    "error of CEL",
			trial:   Observation{Answers: []workload.Answer{answer(404, `{}`)}, Probes: clean.Probes},
			want:    "suspected | refusal | ? total",
			summary: `The invariant "total" could not be evaluated: no such key: total.`,
		},
		{
			name:    "violated beside another finding",
			trial:   Observation{Answers: clean.Answers, Probes: []workload.Answer{twice}},
			want:    "finding | success | charges: $: was array, is array with items added | charged once",
			summary: `The invariant "charged once" does not hold.`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := b.Judge(t.Context(), tt.trial)
			if got := text(s); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if !strings.Contains(s.GetSummary(), tt.summary) {
				t.Errorf("%q does not say %q", s.GetSummary(), tt.summary)
			}
		})
	}
}

func TestLearnErrors(t *testing.T) {
	o := oracle(t, nil)
	if _, err := o.Learn(t.Context(), nil, nil); !errors.Is(err, ErrNoCleanRuns) {
		t.Error(err)
	}
	for name, runs := range map[string][]Observation{
		"classes": {run(answer(200, "")), run(answer(500, ""))},
		"crash":   {run(broken("reset"))},
		"answers": {run(answer(200, "")), {}},
	} {
		if _, err := o.Learn(t.Context(), runs, nil); !errors.Is(err, ErrDisagree) {
			t.Errorf("%s: got %v, want ErrDisagree", name, err)
		}
	}
	for name, last := range map[string]workload.Answer{"refused": answer(502, ""), "late": broken("timeout")} {
		if _, err := o.Learn(t.Context(), []Observation{run(answer(200, "")), run(last)}, nil); !strings.Contains(fmt.Sprint(err), "nothing was injected") {
			t.Errorf("%s: %v does not say what to do", name, err)
		}
	}
}

// TestDisagreementNamesAllRuns: which run is the odd one is for the reader to say.
func TestDisagreementNamesAllRuns(t *testing.T) {
	good, bad := run(answer(200, "")), run(answer(503, ""))
	for _, tt := range []struct {
		runs []Observation
		want string
	}{
		{[]Observation{bad, good}, "clean runs disagree: step 1: refused with HTTP 503 in run 1; HTTP 200 in run 2; "},
		{[]Observation{good, bad, good}, "clean runs disagree: step 1: HTTP 200 in run 1, 3; refused with HTTP 503 in run 2; "},
		{[]Observation{run(broken("reset"))}, "clean runs disagree: step 1: no answer: reset in run 1; "},
	} {
		if _, err := oracle(t, nil).Learn(t.Context(), tt.runs, nil); !strings.HasPrefix(fmt.Sprint(err), tt.want) {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
}

func TestCompileListsAllProblems(t *testing.T) {
	_, err := Compile(&campaignv1.Oracle{
		Invariants: []*campaignv1.Invariant{{Name: "a", Cel: "answer ."}, {Name: "b", Cel: "1 + 1"}},
		Ignore:     []string{"no path"},
	})
	if !errors.Is(err, valid.ErrInvalid) {
		t.Fatal(err)
	}
	for _, path := range []string{"invariants[0].cel", "invariants[1].cel", "ignore[0]"} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s is not in %v", path, err)
		}
	}
}

// TestUnknownNames: what an invariant names must be there.
func TestUnknownNames(t *testing.T) {
	o := oracle(t, &campaignv1.Oracle{Invariants: []*campaignv1.Invariant{
		{Name: "right", Cel: `answers.order.status == 200 && probes["stock"].status == 200 && answer.json.probes.x == 1`},
		{Name: "wrong", Cel: `answers.oder.status == 200 || probes.stok.status == 200 || probes.order.status == 200`},
	}})
	got := valid.Error(o.Unknown([]string{"login", "order"}, []string{"stock"}))
	want := valid.Error([]valid.Problem{
		{Path: "invariants[1].cel", Want: `answers["oder"]: must be the name of a step (known: login, order)`},
		{Path: "invariants[1].cel", Want: `probes["order"]: must be the name of a probe (known: stock)`},
		{Path: "invariants[1].cel", Want: `probes["stok"]: must be the name of a probe (known: stock)`},
	})
	if got == nil || got.Error() != want.Error() {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	got = valid.Error(o.Unknown([]string{"order"}, nil))
	if got == nil || !strings.Contains(got.Error(), `probes["stock"]: must be the name of a probe (there is none)`) {
		t.Errorf("without probes it says %v", got)
	}
}

func TestSummaries(t *testing.T) {
	ten := `[{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1}]`
	b := learn(t, oracle(t, nil), run(answer(200, ten)), run(answer(200, ten)))
	for _, tt := range []struct{ body, want string }{
		{"null", "HTTP 200 with body `null`; clean answers are an array of 10 objects."},
		{ten[:len(ten)-9] + "]", "HTTP 200 with 9 of 10 items at $."},
		{strings.Replace(ten, `"a":1`, `"a":null`, 1), "HTTP 200 with a wrong shape at $[*].a: it was number, is null."},
	} {
		if got := b.Judge(t.Context(), run(answer(200, tt.body))).GetSummary(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	if got := b.Judge(t.Context(), run(answer(500, "x"))).GetSummary(); got != "Refused with HTTP 500, with nothing left behind." {
		t.Error(got)
	}
}

func TestSignatureID(t *testing.T) {
	b := learn(t, oracle(t, nil), run(answer(200, `{"a":1,"b":[1]}`)))
	judge := func(body string) string { return b.Judge(t.Context(), run(answer(200, body))).GetId() }
	if len(judge("null")) != 16 {
		t.Errorf("the id is %q", judge("null"))
	}
	if judge("null") == judge("{}") {
		t.Error("two outcomes have one id")
	}
	// Maps are walked in a random order; ids must not be.
	first := judge("{}")
	for range 50 {
		if judge("{}") != first {
			t.Fatal("the id depends on an order")
		}
	}
	seen := map[string]string{}
	for i, s := range []*campaignv1.OutcomeSignature{
		{Answers: []string{"a", "b"}}, {Answers: []string{"ab"}}, {Shape: []string{"a", "b"}}, {Answers: []string{"a"}, Shape: []string{"b"}},
	} {
		name := fmt.Sprint(i)
		if other, ok := seen[id(s)]; ok {
			t.Errorf("signatures %s and %s have one id", other, name)
		}
		seen[id(s)] = name
	}
}
