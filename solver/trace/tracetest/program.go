package tracetest

import "fmt"

// Program is what a service does to answer a call: one group of calls after the
// other, those of a group at once.
type Program [][]Branch

// Branch is one call of a [Program], and what the callee does for it.
type Branch struct {
	Callee, API string
	Body        Program
}

// task is a call under way and how far its callee has come.
type task struct {
	call    *Call
	parent  *task
	service string
	body    Program
	open    int // calls of the current group that have not been answered
	step    int
}

// Run runs p at the front service. The seed decides the order of whatever could
// happen in either order; calls of a group go out in theirs.
func (p Program) Run(name, front string, seed uint64) *Run {
	r := New(fmt.Sprintf("%s %d", name, seed))
	tasks := []*task{{call: r.Send("", front, "GET /"), service: front, body: p}}
	for n := 0; len(tasks) > 0; n++ {
		var ready []int
		for i, t := range tasks {
			if t.open == 0 {
				ready = append(ready, i)
			}
		}
		i := ready[int(seeded(seed, n)%uint64(len(ready)))]
		t := tasks[i]
		switch {
		case t.step == 0:
			t.call.Receive()
			t.step++
		case t.step == 1 && len(t.body) > 0:
			for _, b := range t.body[0] {
				tasks = append(tasks, &task{call: r.Send(t.service, b.Callee, b.API), parent: t, service: b.Callee, body: b.Body})
				t.open++
			}
			t.body = t.body[1:]
		case t.step == 1:
			t.call.Answer(t.call.OK())
			t.step++
		default:
			t.call.Get().Deliver()
			if t.parent != nil {
				t.parent.open--
			}
			tasks = append(tasks[:i], tasks[i+1:]...)
		}
	}
	return r.End()
}
