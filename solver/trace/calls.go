package trace

import (
	"cmp"
	"maps"
	"slices"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// makeCalls joins what both ends saw of each call.
func (t *Trial) makeCalls(obs []*observation, g *graph, position []int) {
	at := func(n int) int {
		if n == None {
			return None
		}
		return position[n]
	}
	callOf := make([]int, len(obs))
	chosen := map[int]int{} // call to the server's observation that stands for it
	for i, o := range obs {
		if o.role != tfiv1.Role_ROLE_CLIENT {
			continue
		}
		callOf[i] = len(t.Calls)
		c := newCall(o)
		c.Caller, c.Callee = o.service, o.peer
		c.ClientReq, c.ClientResp, c.Delivered = at(g.of[i][stepReq]), at(g.of[i][stepResp]), at(g.of[i][stepDelivered])
		t.Calls = append(t.Calls, c)
	}
	firstOf := map[eventName]int{}
	for i, o := range obs {
		if o.role == tfiv1.Role_ROLE_CLIENT {
			continue
		}
		ci := None
		if cause := g.nodes[g.of[i][stepReq]].cause; cause != None && g.nodes[cause].obs.role == tfiv1.Role_ROLE_CLIENT {
			ci = callOf[g.nodes[cause].index]
		} else if prior, ok := firstOf[o.req.from]; ok && o.req.from.seq != 0 {
			// Attempts of a call whose caller's report is missing.
			ci = prior
		}
		if ci == None {
			ci = len(t.Calls)
			c := newCall(o)
			c.Caller, c.Callee = o.peer, o.service
			t.Calls = append(t.Calls, c)
			if o.req.from.seq != 0 {
				firstOf[o.req.from] = ci
			}
		}
		callOf[i] = ci
		c := &t.Calls[ci]
		c.Attempts++
		if c.Attempts > 1 || !slices.Contains(c.Spans, o.span) {
			c.Spans = append(c.Spans, o.span)
		}
		if !c.Answer.Seen {
			c.Answer = o.answer
		}
		if c.K == 0 {
			c.K = o.k
		}
		c.GRPC = c.GRPC || o.grpc
		c.LetGo = c.LetGo || o.letGo
		if have, ok := chosen[ci]; !ok || (!t.answered(c, g, have, position) && t.answered(c, g, i, position)) {
			chosen[ci] = i
			c.ServerReq, c.ServerResp = at(g.of[i][stepReq]), at(g.of[i][stepResp])
		}
	}
	for i := range g.nodes {
		t.Events[position[i]].Call = callOf[g.nodes[i].index]
	}
	for i := range t.Calls {
		if t.Calls[i].Attempts > 1 {
			t.Retries = append(t.Retries, Retry{i, t.Calls[i].Attempts})
		}
	}
	t.sortCalls()
	t.rankMissing()
}

func newCall(o *observation) Call {
	return Call{
		API: o.api, K: o.k, GRPC: o.grpc, Path: o.path, Parent: o.parent,
		ClientReq: None, ServerReq: None, ServerResp: None, ClientResp: None, Delivered: None,
		Answer: o.answer, Made: o.made, Broken: o.broken, LetGo: o.letGo,
		Judged: slices.Clone(o.judged), Spans: []string{o.span},
	}
}

// answered reports whether the caller got its answer from observation i.
func (t *Trial) answered(c *Call, g *graph, i int, position []int) bool {
	if c.ClientResp == None {
		return false
	}
	// A fault at the callee's sidecar answers with the number of the request.
	for _, s := range [...]step{stepReq, stepResp} {
		if n := g.of[i][s]; n != None && t.Events[c.ClientResp].Cause == position[n] {
			return true
		}
	}
	return false
}

// sortCalls puts calls in the order of their first event.
func (t *Trial) sortCalls() {
	order := make([]int, len(t.Calls))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.Calls[a].first(), t.Calls[b].first()) })
	calls, to := make([]Call, len(order)), make([]int, len(order))
	for i, o := range order {
		calls[i], to[o] = t.Calls[o], i
	}
	t.Calls = calls
	for i := range t.Events {
		t.Events[i].Call = to[t.Events[i].Call]
	}
	for i := range t.Retries {
		t.Retries[i].Call = to[t.Retries[i].Call]
	}
	slices.SortFunc(t.Retries, func(a, b Retry) int { return cmp.Compare(a.Call, b.Call) })
}

// findUnmatched lists requests that no sidecar received, and messages whose
// sender did not report.
func (t *Trial) findUnmatched(g *graph, position []int) {
	received := map[int]bool{}
	for i := range g.nodes {
		n := &g.nodes[i]
		switch {
		case n.cause != None:
			received[n.cause] = true
		case n.m.from.seq != 0:
			t.UnmatchedReceives = append(t.UnmatchedReceives, Receive{position[i], n.m.from.instance, n.m.from.seq})
		}
	}
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.step != stepReq || n.obs.role != tfiv1.Role_ROLE_CLIENT || received[i] || n.obs.stopped() {
			continue
		}
		t.UnmatchedSends = append(t.UnmatchedSends, Send{position[i], n.obs.peer})
	}
	slices.SortFunc(t.UnmatchedSends, func(a, b Send) int { return cmp.Compare(a.Event, b.Event) })
	slices.SortFunc(t.UnmatchedReceives, func(a, b Receive) int { return cmp.Compare(a.Event, b.Event) })
}

// stopped reports whether the request never left its own sidecar: a fault took
// its place, its caller left while a fault delayed it, or the proxy had nowhere to
// send it.
func (o *observation) stopped() bool {
	if o.firedReq.id != "" && o.firedReq.fault != "delay" && !o.letGo {
		return true
	}
	return o.unsent || o.made || o.broken
}

// findGaps lists numbers that are missing up to the highest one heard of.
func (t *Trial) findGaps(services map[string]string) {
	have := map[string]map[uint64]bool{}
	top := map[string]uint64{}
	see := func(instance string, seq uint64) { top[instance] = max(top[instance], seq) }
	for i := range t.Events {
		e := &t.Events[i]
		if have[e.Instance] == nil {
			have[e.Instance] = map[uint64]bool{}
		}
		have[e.Instance][e.Seq] = true
		see(e.Instance, e.Seq)
	}
	for _, r := range t.UnmatchedReceives {
		see(r.Instance, r.Seq)
	}
	for in, n := range t.Ended {
		see(in, n)
	}
	for _, in := range slices.Sorted(maps.Keys(top)) {
		next := uint64(1)
		for _, seq := range append(slices.Sorted(maps.Keys(have[in])), top[in]+1) {
			if seq > next {
				t.Gaps = append(t.Gaps, Gap{services[in], in, next, seq - 1})
			}
			next = seq + 1
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
