package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// sketch writes a sequence as text, a line a row.
func sketch(s *sequence) string {
	var b strings.Builder
	fmt.Fprintln(&b, strings.Join(s.lanes, " "))
	for i, r := range s.rows {
		fmt.Fprintf(&b, "%s %s", r.half, r.text)
		if r.status != "" {
			fmt.Fprintf(&b, " %s", r.status)
		}
		if a := r.arrow; a != nil {
			fmt.Fprintf(&b, " | %s -> %s", a.from, a.to)
			if a.stopped {
				b.WriteString(" stopped")
			}
			if a.toRow != i {
				fmt.Fprintf(&b, " in row %d", a.toRow)
			}
		}
		if r.band != nil {
			fmt.Fprintf(&b, " | %s..%s", r.band.from, r.band.to)
		}
		for _, n := range r.notes {
			mark := "atom"
			if n.fault {
				mark = "fault"
			}
			fmt.Fprintf(&b, " | %s at %s: %s", mark, n.lane, n.text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestPlot(t *testing.T) {
	abort := tfic("t", "b", "GET /x", 1, reqPhase, "abort")
	for _, test := range []struct {
		name string
		tell func(s *story)
		want string
	}{
		{"a call", func(s *story) {
			s.both("a", "b", "GET /x", 1, reqPhase, 0)
			s.both("a", "b", "GET /x", 1, respPhase, 200)
		}, "a b\nreq GET /x #1 | a -> b\nresp GET /x #1 200 | b -> a\n"},
		{"a leaf", func(s *story) {
			s.send("a", "db", "GET /x", 1, reqPhase, 0)
			s.add(&campaignv1.Event{Op: &tfiv1.Op{Observer: "a", Peer: "db", Role: clientRole, Api: "GET /x", Phase: respPhase}, K: 1, Status: 500, Outcome: tfiv1.Outcome_OUTCOME_FAILURE})
		}, "a db\nreq GET /x #1 | a -> db\nresp GET /x #1 500 | db -> a\n"},
		{"a request that a fault took", func(s *story) {
			s.send("a", "b", "GET /x", 1, reqPhase, 0).Fired = "t"
			s.both("a", "b", "GET /x", 2, reqPhase, 0)
		}, "a b\nreq GET /x #1 | a -> b stopped | fault at a: abort: a reset instead of this request\nreq GET /x #2 | a -> b\n"},
		{"a request that crosses another", func(s *story) {
			first := s.send("a", "b", "GET /x", 1, reqPhase, 0)
			second := s.send("a", "b", "GET /x", 2, reqPhase, 0)
			s.receive(second)
			s.receive(first)
		}, "a b\nreq GET /x #1 | a -> b in row 2\nreq GET /x #2 | a -> b\n ↳ GET /x #1\n"},
		{"late, but in order", func(s *story) {
			first := s.send("a", "b", "GET /x", 1, reqPhase, 0)
			s.both("a", "c", "GET /y", 1, reqPhase, 0)
			s.receive(first)
		}, "a b c\nreq GET /x #1 | a -> b\nreq GET /y #1 | a -> c\n"},
		{"gRPC and an atom", func(s *story) {
			s.both("a", "b", "p.S/M", 1, respPhase, 0).Atoms = []string{"≥1"}
		}, "a b\nresp p.S/M #1 OK | b -> a | atom at a: ≥1\n"},
		{"delivered, where it matters", func(s *story) {
			d := s.both("a", "b", "GET /x", 1, respPhase, 200)
			for _, atoms := range [][]string{nil, {"≥1 delivered"}} {
				s.add(&campaignv1.Event{Op: d.Op, K: 1, Delivered: true, Atoms: atoms})
			}
		}, "a b\nresp GET /x #1 200 | b -> a\ndlvd GET /x #1 | atom at a: ≥1 delivered\n"},
		{"like calls", func(s *story) {
			for k := uint32(1); k <= 5; k++ {
				s.both("a", "b", "GET /x", k, reqPhase, 0)
				s.both("a", "b", "GET /x", k, respPhase, 200)
			}
		}, "a b\n⋯ GET /x: 5 requests, 5 answers | a..b\n"},
		{"like calls around one that fails", func(s *story) {
			for k := uint32(1); k <= 9; k++ {
				status := uint32(200)
				if k == 5 {
					status = 503
				}
				s.both("a", "b", "GET /x", k, reqPhase, 0)
				s.both("a", "b", "GET /x", k, respPhase, status)
			}
		}, "a b\n⋯ GET /x: 4 requests, 4 answers | a..b\nreq GET /x #5 | a -> b\nresp GET /x #5 503 | b -> a\n⋯ GET /x: 4 requests, 4 answers | a..b\n"},
		{"an answer whose request is in a band", func(s *story) {
			var sent []*campaignv1.Event
			for k := uint32(1); k <= 6; k++ {
				sent = append(sent, s.both("a", "b", "GET /x", k, reqPhase, 0))
			}
			s.both("c", "d", "GET /y", 1, reqPhase, 0)
			_ = sent
			s.both("a", "b", "GET /x", 1, respPhase, 200)
		}, "a b c d\n⋯ GET /x: 6 requests | a..b\nreq GET /y #1 | c -> d\nresp GET /x #1 200 | b -> a\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &story{}
			test.tell(s)
			got := sketch(plot(&campaignv1.Trial{Tfics: []*tfiv1.Tfic{abort}, Events: s.events}))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFaultsInWords(t *testing.T) {
	for kind, want := range map[string]string{
		"error": "error 503 instead of this answer", "abort": "abort: a reset instead of this answer",
	} {
		s := &story{}
		s.both("a", "b", "GET /x", 1, respPhase, 200).Fired = "t"
		got := plot(&campaignv1.Trial{Tfics: []*tfiv1.Tfic{tfic("t", "b", "GET /x", 1, respPhase, kind)}, Events: s.events})
		if note := got.rows[0].notes[0]; !note.fault || note.text != want {
			t.Errorf("%s: %+v, want %q", kind, note, want)
		}
	}
}

// TestPlotKeepsOrder draws random trials: on each lane events go down in their
// order, and no message is received above where it is sent.
func TestPlotKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &story{}
		lanes := []string{"a", "b", "c", "d"}
		var open []*campaignv1.Event
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(open) > 0 && rapid.Bool().Draw(t, "receive") {
				j := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				e := s.receive(open[j])
				open = slices.Delete(open, j, j+1)
				if rapid.IntRange(0, 9).Draw(t, "fires") == 0 {
					e.Fired = "t"
				}
				continue
			}
			from := rapid.SampledFrom(lanes).Draw(t, "from")
			to := rapid.SampledFrom(lanes).Draw(t, "to")
			phase := rapid.SampledFrom([]tfiv1.Phase{reqPhase, respPhase}).Draw(t, "phase")
			e := s.send(from, to, rapid.SampledFrom([]string{"GET /x", "p.S/M"}).Draw(t, "api"), uint32(i), phase, 200)
			if rapid.IntRange(0, 9).Draw(t, "lost") > 0 {
				open = append(open, e)
			}
		}
		got := plot(&campaignv1.Trial{Events: s.events})
		last := make(map[string]int)
		for _, e := range s.events {
			at, ok := got.rowOf[e.GetPosition()]
			if !ok {
				t.Fatalf("event %d is not drawn", e.GetPosition())
			}
			lane := e.GetOp().GetObserver()
			if before, ok := last[lane]; ok && at < before {
				t.Fatalf("event %d at %s is drawn in row %d, an earlier one in row %d\n%s", e.GetPosition(), lane, at, before, sketch(got))
			}
			last[lane] = at
			if sent, ok := got.rowOf[e.GetCause()]; e.GetCause() != 0 && ok && sent > at {
				t.Fatalf("event %d is received in row %d and sent in row %d\n%s", e.GetPosition(), at, sent, sketch(got))
			}
		}
		if d := draw(&campaignv1.Trial{Events: s.events}); (d == nil) != (len(s.events) == 0) {
			t.Fatalf("%d events give %v", len(s.events), d)
		}
	})
}

func TestDiffLines(t *testing.T) {
	for _, test := range []struct{ name, left, right, want string }{
		{"equal", "a b", "a b", "=a =b"},
		{"changed", "a b c", "a x c", "=a b|x =c"},
		{"removed", "a b c", "a c", "=a b| =c"},
		{"added", "a c", "a b c", "=a |b =c"},
		{"nothing left", "a b", "", "a| b|"},
		{"all new", "", "a", "|a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, r := range diffLines(strings.Fields(test.left), strings.Fields(test.right)) {
				if r.Equal {
					got = append(got, "="+r.Left)
					continue
				}
				got = append(got, r.Left+"|"+r.Right)
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c"}))
		a, b := words.Draw(t, "a"), words.Draw(t, "b")
		var left, right []string
		for _, r := range diffLines(a, b) {
			if r.HasLeft {
				left = append(left, r.Left)
			}
			if r.HasRight {
				right = append(right, r.Right)
			}
			if r.Equal && r.Left != r.Right {
				t.Fatalf("%q is called equal to %q", r.Left, r.Right)
			}
		}
		if !slices.Equal(left, a) || !slices.Equal(right, b) {
			t.Fatalf("lines are lost: %q, %q", left, right)
		}
	})
}

func TestSkipEqual(t *testing.T) {
	same := make([]string, 30)
	for i := range same {
		same[i] = fmt.Sprint(i)
	}
	other := slices.Clone(same)
	other[15] = "x"
	rows := skipEqual(diffLines(same, other))
	if len(rows) != 9 || rows[0].Skipped != 12 || rows[8].Skipped != 11 {
		t.Errorf("got %+v", rows)
	}
	if rows = skipEqual(diffLines(same, same)); len(rows) != 13 || rows[12].Skipped != 18 {
		t.Errorf("without a difference: %+v", rows)
	}
}

func TestRanges(t *testing.T) {
	for _, test := range []struct {
		in   []uint32
		want string
	}{{nil, ""}, {[]uint32{3}, "3"}, {[]uint32{2, 1}, "1, 2"}, {[]uint32{10, 1, 3, 4, 5, 4}, "1, 3–5, 10"}} {
		if got := ranges(test.in); got != test.want {
			t.Errorf("%v is %q, want %q", test.in, got, test.want)
		}
	}
}
