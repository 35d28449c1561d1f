package expr

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

func TestAnswerExpressions(t *testing.T) {
	answer := &campaignv1.Answer{
		Step:     "order",
		Status:   201,
		Headers:  map[string]string{"Location": "/orders/7"},
		Duration: durationpb.New(20 * time.Millisecond),
	}
	body := []byte(`{"id": 12345678, "big": 9007199254740993, "items": [{"n": 1}, {"n": 2}], "note": "x"}`)
	tests := map[string]string{
		`answer.headers.location`:                 "/orders/7",
		`answer.json.id`:                          "12345678",
		`answer.json.big`:                         "9007199254740993",
		`answer.json.items[1].n`:                  "2",
		`answer.json.note + "y"`:                  "xy",
		`answer.status == 201`:                    "true",
		`answer.json.items.size() == 2`:           "true",
		`answer.duration < duration("1s")`:        "true",
		`answer.json.items.all(i, i.n > 0.0)`:     "true",
		`answer.body.contains("note")`:            "true",
		`has(answer.json.missing) ? "yes" : "no"`: "no",
	}
	for source, want := range tests {
		t.Run(source, func(t *testing.T) {
			program, err := Compile(source, "answer")
			if err != nil {
				t.Fatal(err)
			}
			got, err := program.Eval(t.Context(), map[string]any{"answer": Answer(answer, body)})
			if err != nil {
				t.Fatal(err)
			}
			if text, ok := Text(got); !ok || text != want {
				t.Errorf("got %v (%T), want %s", got, got, want)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	if _, err := Compile("answer.status ==", "answer"); err == nil {
		t.Error("half an expression compiles")
	}
	if _, err := Compile("trace.size()", "answer"); err == nil {
		t.Error("an unknown variable compiles")
	}
	if _, err := CompileBool("1 + 1"); err == nil {
		t.Error("a number passes for a bool")
	}
	program, err := CompileBool("answer.status", "answer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := program.Bool(t.Context(), map[string]any{"answer": map[string]any{"status": 1}}); err == nil {
		t.Error("a number is taken for a bool")
	}
	if _, err := program.Eval(t.Context(), map[string]any{"answer": map[string]any{}}); err == nil {
		t.Error("a missing key gives no error")
	}
}

func TestDecodeJSON(t *testing.T) {
	for body, want := range map[string]bool{
		"null": true, " [1] ": true, `{"a":1}`: true, "": false, "{": false, "1 2": false, "<html>": false,
	} {
		if _, ok := DecodeJSON([]byte(body)); ok != want {
			t.Errorf("DecodeJSON(%q) = %v, want %v", body, ok, want)
		}
	}
}

func TestKeys(t *testing.T) {
	for source, want := range map[string][]string{
		`true`:                    nil,
		`probes.size() == 2`:      nil,
		`answers.a.status == 200`: nil,
		`probes.b.status == 200 && probes.a.json`:                                   {"a", "b"},
		`probes["x y"].status == probes.a.status || has(probes.c) && "d" in probes`: {"a", "c", "d", "x y"},
		`[1, 2].all(n, probes["of" + string(n)].json[n].k == 1)`:                    nil,
		`answers.probes.a == 1 || answers["probes"]["b"] == 1`:                      nil,
		`[probes.a].exists(p, p.json.probes.b == {"k": probes.c}.k)`:                {"a", "c"},
	} {
		program, err := Compile(source, "answers", "probes")
		if err != nil {
			t.Fatal(err)
		}
		if got := program.Keys("probes"); !slices.Equal(got, want) {
			t.Errorf("%s names %q, want %q", source, got, want)
		}
	}
}
