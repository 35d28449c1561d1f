package tracetest

import "fmt"

// Services and apis of [Dispatch].
const (
	Front = "frontend"

	CustomerAPI = "GET /customer"
	DriverAPI   = "driver.DriverService/FindNearest"
	RouteAPI    = "GET /route"
	DispatchAPI = "GET /dispatch"
)

// Dispatch is a run of a front end that asks for a customer, then for drivers
// over gRPC, then for ten routes, three at a time, in an order that depends on
// the seed. Change, if set, is told of every call before it goes on, and may take it over by
// returning false.
func Dispatch(seed uint64, change func(c *Call) bool) *Run {
	return DispatchOf(New(fmt.Sprintf("dispatch %d", seed)), seed, change)
}

// DispatchOf is [Dispatch] on a run that has been prepared.
func DispatchOf(r *Run, seed uint64, change func(c *Call) bool) *Run {
	goesOn := func(c *Call) bool { return change == nil || change(c) }
	root := r.Send("", Front, DispatchAPI).Receive()
	for _, call := range [...][2]string{{"customer", CustomerAPI}, {"driver", DriverAPI}} {
		c := r.Send(Front, call[0], call[1])
		if !goesOn(c) {
			root.Answer(500)
			return r.End()
		}
		c.Done()
	}
	routes(r, seed, goesOn)
	root.Answer(200)
	return r.End()
}

// routes runs ten calls with at most three under way.
func routes(r *Run, seed uint64, goesOn func(c *Call) bool) {
	const total, most = 10, 3
	type flight struct {
		c    *Call
		step int
	}
	var flying []*flight
	started := 0
	for n := 0; started < total || len(flying) > 0; n++ {
		// As a pool of workers does: who is free takes the next one at once.
		if started < total && len(flying) < most {
			started++
			if c := r.Send(Front, "route", RouteAPI); goesOn(c) {
				flying = append(flying, &flight{c: c})
			}
			continue
		}
		i := int(seeded(seed, n) % uint64(len(flying)))
		f := flying[i]
		switch f.step {
		case 0:
			f.c.Receive()
		case 1:
			f.c.Answer(200)
		case 2:
			f.c.Get().Deliver()
			flying = append(flying[:i], flying[i+1:]...)
		}
		f.step++
	}
}

// API and K tell which call it is.
func (c *Call) API() string { return c.api }

// K is the call's rank.
func (c *Call) K() int { return int(c.k) }
