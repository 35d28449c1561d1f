package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// foldFrom is the number of consecutive events of like calls that are drawn as
// one band.
const foldFrom = 6

// maxEvents bounds a diagram.
const maxEvents = 2000

// clientLane stands for whoever is outside the mesh.
const clientLane = "client"

// sequence is a trial's events as rows, before they have places on paper. Going
// down, a lane's events are in their order, and a message is sent no later than
// it is received; what is not ordered may share a height.
type sequence struct {
	lanes []string
	// unseen lanes have no sidecar: what is drawn there was seen from elsewhere.
	unseen map[string]bool
	rows   []row
	// rowOf tells by an event's position in which row it is; what is not drawn has
	// none.
	rowOf map[uint32]int
	// cut is the number of events left out at the end.
	cut int
}

// row is one height of the diagram.
type row struct {
	// text describes it; full where text had to be cut.
	half, text, status string
	// arrow is nil for a band, and for what happens at one lane.
	arrow *arrow
	// band covers folded events, from lane to lane.
	band *band
	// notes stand beside it.
	notes []note
	// failed: the answer is a failure.
	failed bool
}

type arrow struct {
	from, to string
	// toRow is the row in which it is received; its own in most cases.
	toRow int
	// answer: drawn dashed, as answers are.
	answer bool
	// stopped: it never arrives.
	stopped bool
}

type band struct {
	from, to string
	lines    []string
}

// note marks an event: at a lane, with words beside the diagram.
type note struct {
	lane  string
	fault bool // otherwise an atom
	text  string
}

// sends says whether an event is where its message is sent, and not where it is received.
func sends(e *campaignv1.Event) bool {
	return (e.GetOp().GetRole() == tfiv1.Role_ROLE_CLIENT) == (e.GetOp().GetPhase() == tfiv1.Phase_PHASE_REQ)
}

// ends returns caller and callee of an event's call.
func ends(op *tfiv1.Op) (caller, callee string) {
	if op.GetRole() == tfiv1.Role_ROLE_SERVER {
		caller, callee = op.GetPeer(), op.GetObserver()
	} else {
		caller, callee = op.GetObserver(), op.GetPeer()
	}
	if caller == "" {
		caller = clientLane
	}
	return caller, callee
}

// plot lays a trial's events out.
func plot(t *campaignv1.Trial) *sequence {
	events := slices.Clone(t.GetEvents())
	slices.SortStableFunc(events, func(a, b *campaignv1.Event) int { return cmp.Compare(a.GetPosition(), b.GetPosition()) })
	s := &sequence{unseen: make(map[string]bool), rowOf: make(map[uint32]int)}
	if len(events) > maxEvents {
		s.cut = len(events) - maxEvents
		events = events[:maxEvents]
	}
	s.findLanes(events)
	p := plotter{
		sequence: s,
		tfics:    make(map[string]*tfiv1.Tfic),
		fold:     foldable(events),
		received: make(map[uint32]bool),
		lastRow:  make(map[string]int),
	}
	for _, f := range t.GetTfics() {
		p.tfics[f.GetId()] = f
	}
	for _, e := range events {
		if !sends(e) && e.GetCause() != 0 && !e.GetDelivered() {
			p.received[e.GetCause()] = true
		}
	}
	for i := 0; i < len(events); {
		n := p.run(events[i:])
		if n >= foldFrom {
			p.foldRun(events[i : i+n])
			i += n
			continue
		}
		for range max(1, n) {
			p.event(events[i])
			i++
		}
	}
	return s
}

func (s *sequence) findLanes(events []*campaignv1.Event) {
	seen := make(map[string]bool)
	observers := make(map[string]bool)
	add := func(lane string) {
		if lane != "" && !seen[lane] {
			seen[lane] = true
			s.lanes = append(s.lanes, lane)
		}
	}
	for _, e := range events {
		caller, callee := ends(e.GetOp())
		add(caller)
		add(callee)
		observers[e.GetOp().GetObserver()] = true
	}
	for lane := range seen {
		s.unseen[lane] = !observers[lane]
	}
	if i := slices.Index(s.lanes, clientLane); i > 0 {
		s.lanes = slices.Insert(slices.Delete(s.lanes, i, i+1), 0, clientLane)
	}
}

// groupOf names the calls that are alike, and callOf one of them.
func groupOf(e *campaignv1.Event) string {
	caller, callee := ends(e.GetOp())
	return caller + "\x00" + callee + "\x00" + e.GetOp().GetApi()
}

func callOf(e *campaignv1.Event) string {
	if e.GetCall() != "" {
		return e.GetCall()
	}
	return fmt.Sprintf("%s\x00%d", groupOf(e), e.GetK())
}

// foldable returns the calls that say nothing of their own: at least four alike,
// without a fault, an atom or a failure.
func foldable(events []*campaignv1.Event) map[string]bool {
	special := make(map[string]bool)
	calls := make(map[string]map[string]bool)
	for _, e := range events {
		group, call := groupOf(e), callOf(e)
		if calls[group] == nil {
			calls[group] = make(map[string]bool)
		}
		calls[group][call] = true
		if e.GetFired() != "" || len(e.GetAtoms()) > 0 || failed(e) {
			special[call] = true
		}
	}
	plain := make(map[string]bool)
	for _, group := range calls {
		var names []string
		for call := range group {
			if !special[call] {
				names = append(names, call)
			}
		}
		if len(names) < 4 {
			continue
		}
		for _, call := range names {
			plain[call] = true
		}
	}
	return plain
}

func failed(e *campaignv1.Event) bool {
	return e.GetOp().GetPhase() == tfiv1.Phase_PHASE_RESP && e.GetOutcome() == tfiv1.Outcome_OUTCOME_FAILURE
}

type plotter struct {
	*sequence
	tfics map[string]*tfiv1.Tfic
	fold  map[string]bool
	// received tells by position whether a send was received.
	received map[uint32]bool
	// lastRow is the row after that of a lane's last event.
	lastRow map[string]int
}

// run returns how many of the first events can be folded.
func (p *plotter) run(events []*campaignv1.Event) int {
	n := 0
	for n < len(events) && p.fold[callOf(events[n])] {
		n++
	}
	return n
}

// foldRun draws events as one band that counts them.
func (p *plotter) foldRun(events []*campaignv1.Event) {
	type tally struct {
		caller, callee, api string
		requests, answers   int
	}
	var order []string
	tallies := make(map[string]*tally)
	// A message is counted where it is sent, or where it is received if its
	// sender has no sidecar.
	for _, e := range events {
		if e.GetDelivered() || (!sends(e) && e.GetCause() != 0) {
			continue
		}
		group := groupOf(e)
		t := tallies[group]
		if t == nil {
			caller, callee := ends(e.GetOp())
			t = &tally{caller: caller, callee: callee, api: e.GetOp().GetApi()}
			tallies[group] = t
			order = append(order, group)
		}
		if e.GetOp().GetPhase() == tfiv1.Phase_PHASE_REQ {
			t.requests++
		} else {
			t.answers++
		}
	}
	b := &band{}
	low, high := len(p.lanes), -1
	for _, e := range events {
		caller, callee := ends(e.GetOp())
		for _, lane := range []string{caller, callee} {
			i := slices.Index(p.lanes, lane)
			low, high = min(low, i), max(high, i)
		}
	}
	b.from, b.to = p.lanes[max(0, low)], p.lanes[max(0, high)]
	for _, group := range order {
		t := tallies[group]
		var parts []string
		if t.requests > 0 {
			parts = append(parts, plural(t.requests, "request", "requests"))
		}
		if t.answers > 0 {
			parts = append(parts, plural(t.answers, "answer", "answers"))
		}
		b.lines = append(b.lines, t.api+": "+strings.Join(parts, ", "))
	}
	p.rows = append(p.rows, row{half: "⋯", text: strings.Join(b.lines, "; "), band: b})
	at := len(p.rows) - 1
	for _, e := range events {
		p.lastRow[e.GetOp().GetObserver()] = at + 1
		p.rowOf[e.GetPosition()] = at
	}
}

// event draws one event.
func (p *plotter) event(e *campaignv1.Event) {
	notes := p.notes(e)
	op := e.GetOp()
	lane := op.GetObserver()
	if e.GetDelivered() {
		if len(notes) > 0 {
			p.open(e, row{half: "dlvd", text: callText(e), notes: notes})
		}
		return
	}
	caller, callee := ends(op)
	r := row{half: phase(op.GetPhase()), text: callText(e), notes: notes, failed: failed(e)}
	a := &arrow{from: caller, to: callee}
	if op.GetPhase() == tfiv1.Phase_PHASE_RESP {
		a.from, a.to, a.answer = callee, caller, true
		r.status = status(op.GetApi(), e.GetStatus())
	}
	r.arrow = a
	stops := p.stops(e)

	if sends(e) {
		a.toRow = p.open(e, r)
		a.stopped = stops
		return
	}
	sent, ok := p.rowOf[e.GetCause()]
	if !ok || p.rows[sent].arrow == nil {
		// Its sender has no sidecar, or is in a band.
		a.toRow = p.open(e, r)
		return
	}
	// The arrow stands in its sender's row; it is received there too, unless the
	// receiver has seen something since.
	origin := &p.rows[sent]
	if p.lastRow[lane] <= sent {
		origin.notes = append(origin.notes, notes...)
		origin.failed = origin.failed || r.failed
		p.lastRow[lane] = sent + 1
		p.rowOf[e.GetPosition()] = sent
		return
	}
	r.arrow, r.half, r.status = nil, "", ""
	r.text = "↳ " + r.text
	to := p.open(e, r)
	p.rows[sent].arrow.toRow = to
}

// open adds a row for an event.
func (p *plotter) open(e *campaignv1.Event, r row) int {
	p.rows = append(p.rows, r)
	p.lastRow[e.GetOp().GetObserver()] = len(p.rows)
	p.rowOf[e.GetPosition()] = len(p.rows) - 1
	return len(p.rows) - 1
}

// stops reports whether a message that is sent never arrives, because a fault
// took it.
func (p *plotter) stops(e *campaignv1.Event) bool {
	return e.GetFired() != "" && !p.received[e.GetPosition()]
}

func callText(e *campaignv1.Event) string {
	if e.GetK() == 0 {
		return e.GetOp().GetApi()
	}
	return fmt.Sprintf("%s #%d", e.GetOp().GetApi(), e.GetK())
}

func (p *plotter) notes(e *campaignv1.Event) []note {
	var notes []note
	lane := e.GetOp().GetObserver()
	for _, a := range e.GetAtoms() {
		notes = append(notes, note{lane: lane, text: a})
	}
	if e.GetFired() == "" {
		return notes
	}
	what := "request"
	if e.GetOp().GetPhase() == tfiv1.Phase_PHASE_RESP {
		what = "answer"
	}
	f := p.tfics[e.GetFired()].GetFault()
	text := faultOn(f, e.GetOp().GetApi())
	switch f.GetKind().(type) {
	case *tfiv1.Fault_Error:
		if what == "request" {
			text += ": the caller gets it, the callee nothing"
		} else {
			text += " instead of this answer"
		}
	case *tfiv1.Fault_Abort:
		text = "abort: a reset instead of this " + what
	case *tfiv1.Fault_Drop:
		text = "drop: this " + what + " never arrives"
	case *tfiv1.Fault_Delay:
		text += " for this " + what
	default:
		text = "fired: " + e.GetFired()
	}
	return append(notes, note{lane: lane, fault: true, text: text})
}
