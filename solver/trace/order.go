package trace

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// ErrCausality says that reported events would have to come before themselves.
var ErrCausality = errors.New("events contradict each other")

// step tells the three events of an observation apart.
type step uint8

const (
	stepReq step = iota
	stepResp
	stepDelivered
)

// node is an event before it has a position.
type node struct {
	obs   *observation
	index int // of obs
	step  step
	m     moment
	cause int
}

func (n *node) name() eventName { return eventName{n.obs.instance, n.m.seq} }

// graph holds events and who came before whom.
type graph struct {
	nodes    []node
	byName   map[eventName]int
	of       [][3]int // observation to its nodes
	warnings []string
}

func newGraph(obs []*observation) *graph {
	g := &graph{byName: map[eventName]int{}, of: make([][3]int, len(obs))}
	for i, o := range obs {
		g.of[i] = [3]int{None, None, None}
		for s, m := range [...]moment{o.req, o.resp, o.delivered} {
			if m.seq == 0 {
				continue
			}
			n := node{obs: o, index: i, step: step(s), m: m, cause: None}
			if other, taken := g.byName[n.name()]; taken {
				g.warnings = append(g.warnings, fmt.Sprintf("instance %s: number %d is used by spans %s and %s",
					o.instance, m.seq, g.nodes[other].obs.span, o.span))
			} else {
				g.byName[n.name()] = len(g.nodes)
			}
			g.of[i][s] = len(g.nodes)
			g.nodes = append(g.nodes, n)
		}
	}
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.m.from.seq == 0 {
			continue
		}
		if c, ok := g.byName[n.m.from]; ok {
			n.cause = c
		}
	}
	return g
}

// order returns the nodes so that each comes after what it depends on: the event
// before it at its sidecar, and the one that sent it its message. Wall time
// decides only between nodes that could come in either order. Clocks of
// applications may have been set back, so with lenient a contradiction costs a
// message its sender, not the trace.
func (g *graph) order(lenient bool) ([]int, error) {
	after := make([][]int, len(g.nodes))
	waits := make([]int, len(g.nodes))
	link := func(a, b int) {
		after[a] = append(after[a], b)
		waits[b]++
	}
	perInstance := map[string][]int{}
	for i := range g.nodes {
		in := g.nodes[i].obs.instance
		perInstance[in] = append(perInstance[in], i)
		if c := g.nodes[i].cause; c != None {
			link(c, i)
		}
	}
	for _, list := range perInstance {
		slices.SortFunc(list, func(a, b int) int {
			return cmp.Or(cmp.Compare(g.nodes[a].m.seq, g.nodes[b].m.seq), cmp.Compare(a, b))
		})
		for j := 1; j < len(list); j++ {
			link(list[j-1], list[j])
		}
	}
	ready := &readyQueue{nodes: g.nodes}
	for i := range g.nodes {
		if waits[i] == 0 {
			ready.list = append(ready.list, i)
		}
	}
	heap.Init(ready)
	out := make([]int, 0, len(g.nodes))
	done := make([]bool, len(g.nodes))
	waiting := g.byTime()
	var freed []int
	for len(out) < len(g.nodes) {
		if ready.Len() == 0 {
			for done[waiting[0]] {
				waiting = waiting[1:]
			}
			stuck := waiting[0]
			if !lenient {
				return nil, fmt.Errorf("%w: span %s: number %d of instance %s depends on what came after it",
					ErrCausality, g.nodes[stuck].obs.span, g.nodes[stuck].m.seq, g.nodes[stuck].obs.instance)
			}
			freed = append(freed, stuck)
			g.nodes[stuck].cause = None
			waits[stuck] = 0
			heap.Push(ready, stuck)
		}
		n, _ := heap.Pop(ready).(int)
		if done[n] {
			continue
		}
		done[n] = true
		out = append(out, n)
		for _, m := range after[n] {
			if waits[m]--; waits[m] == 0 {
				heap.Push(ready, m)
			}
		}
	}
	if len(freed) > 0 {
		g.warnings = append(g.warnings, fmt.Sprintf("span %s and %d others: clocks contradict the messages; their senders are ignored",
			g.nodes[freed[0]].obs.span, len(freed)-1))
	}
	return out, nil
}

// byTime returns the nodes by wall time. Of those in a contradiction the first is
// freed, the same one whatever the order of reports.
func (g *graph) byTime() []int {
	list := make([]int, len(g.nodes))
	for i := range list {
		list[i] = i
	}
	slices.SortFunc(list, func(a, b int) int { return compareTimes(&g.nodes[a], &g.nodes[b]) })
	return list
}

func compareTimes(a, b *node) int {
	return cmp.Or(
		cmp.Compare(a.m.nano, b.m.nano),
		cmp.Compare(a.obs.instance, b.obs.instance),
		cmp.Compare(a.m.seq, b.m.seq),
		cmp.Compare(a.index, b.index),
	)
}

// readyQueue yields nodes whose causes are placed, by wall time.
type readyQueue struct {
	nodes []node
	list  []int
}

func (q *readyQueue) Len() int { return len(q.list) }
func (q *readyQueue) Less(i, j int) bool {
	return compareTimes(&q.nodes[q.list[i]], &q.nodes[q.list[j]]) < 0
}
func (q *readyQueue) Swap(i, j int) { q.list[i], q.list[j] = q.list[j], q.list[i] }

// Push is for package heap.
func (q *readyQueue) Push(x any) { n, _ := x.(int); q.list = append(q.list, n) }

// Pop is for package heap.
func (q *readyQueue) Pop() any {
	n := q.list[len(q.list)-1]
	q.list = q.list[:len(q.list)-1]
	return n
}

// event renders node n; position maps nodes to indexes of events.
func (g *graph) event(n int, position []int) Event {
	nd := &g.nodes[n]
	o := nd.obs
	e := Event{
		Op:            Op{Observer: o.service, Role: o.role, Peer: o.peer, API: o.api, Phase: tfiv1.Phase_PHASE_REQ},
		K:             o.k,
		Instance:      o.instance,
		Seq:           nd.m.seq,
		Time:          time.Unix(0, nd.m.nano).UTC(),
		Call:          None,
		Request:       position[g.of[nd.index][stepReq]],
		Cause:         None,
		PolicyVersion: o.policy,
	}
	if nd.cause != None {
		e.Cause = position[nd.cause]
	}
	if nd.step != stepReq {
		e.Op.Phase = tfiv1.Phase_PHASE_RESP
		e.Outcome, e.Status = o.outcome, o.status
	}
	e.Delivered = nd.step == stepDelivered
	if !e.Delivered {
		e.Fired = o.fired(e.Op.Phase).id
	}
	return e
}
