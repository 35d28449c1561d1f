package demo

import (
	"context"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// entranceName is the entrance's place in sightings.
const entranceName = "entrance"

// startEntrance stands in front of the frontend's sidecar, and returns its address. It lets
// connections in, not requests: where those that wait queue up in the kernel, each client
// gets its turn, and a campaign is held up by one request of another at most.
func (e *Env) startEntrance(ctx context.Context, target string) (string, error) {
	t, err := newTap(ctx, entranceName, target, topology.ProtocolHTTP)
	if err != nil {
		return "", err
	}
	t.oneByOne = true
	e.taps = append(e.taps, t)
	t.done.Go(t.accept)
	return t.addr(), nil
}
