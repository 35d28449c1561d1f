package valid

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func TestErrorListsAllProblems(t *testing.T) {
	if err := Error(nil); err != nil {
		t.Fatalf("Error(nil) = %v, want nil", err)
	}
	one := Error([]Problem{{Path: "a.b", Want: "must be 1"}})
	if got, want := one.Error(), "invalid: a.b: must be 1"; got != want {
		t.Errorf("one problem: %q, want %q", got, want)
	}
	two := Error([]Problem{{Path: "a", Want: "must be 1"}, {Want: "must be there"}})
	if got, want := two.Error(), "invalid: 2 problems:\n  a: must be 1\n  must be there"; got != want {
		t.Errorf("two problems: %q, want %q", got, want)
	}
	if !errors.Is(two, ErrInvalid) {
		t.Error("an error does not wrap ErrInvalid")
	}
	var invalid *InvalidError
	if !errors.As(two, &invalid) || len(invalid.Problems) != 2 {
		t.Error("an error does not carry its problems")
	}
}

func TestUnder(t *testing.T) {
	got := Under("faults", []Problem{{Path: "phases[0]"}, {Path: "[1]"}, {}})
	for i, want := range []string{"faults.phases[0]", "faults[1]", "faults"} {
		if got[i].Path != want {
			t.Errorf("path %d is %q, want %q", i, got[i].Path, want)
		}
	}
}

// fromJSON makes a message of protobuf's JSON form.
func fromJSON(t *testing.T, text string, m proto.Message) {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("the test's own message: %v", err)
	}
}

// expect fails unless problems are exactly those of want, where each is a path
// and a part of the text after ": ".
func expect(t *testing.T, problems []Problem, want ...string) {
	t.Helper()
	got := make([]string, len(problems))
	for i, p := range problems {
		got[i] = p.String()
	}
	if len(got) != len(want) {
		t.Fatalf("%d problems, want %d:\n  got  %s\n  want %s", len(got), len(want),
			strings.Join(got, "\n       "), strings.Join(want, "\n       "))
	}
	for i := range want {
		path, text, ok := strings.Cut(want[i], ": ")
		if !ok {
			path, text = "", want[i]
		}
		if problems[i].Path != path || !strings.Contains(problems[i].Want, text) {
			t.Errorf("problem %d is %q, want %q", i, got[i], want[i])
		}
	}
}
