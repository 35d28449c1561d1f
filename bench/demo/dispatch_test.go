package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// errGaveUp is HotROD's own doing: on a machine that is busy with other things it gives up on
// its driver after a second, and while that goes on with what nobody waits for any more, the
// Redis that it pretends to have may fail the next dispatch.
var errGaveUp = errors.New("HotROD gave up on its driver")

var driverID = regexp.MustCompile(`^T7\d{5}C$`)

// ordinaryDispatch sends the request of the campaign as anybody would, with a trace or
// without, and says what is wrong with its answer.
func ordinaryDispatch(ctx context.Context, url string, traced bool) error {
	header := http.Header{}
	if traced {
		header.Set("traceparent", ordinaryTraceparent())
	}
	got, err := fetch(ctx, url, header)
	if err != nil {
		return err
	}
	if got.status == http.StatusInternalServerError &&
		(strings.Contains(string(got.body), "DeadlineExceeded") || strings.Contains(string(got.body), "redis timeout")) {
		return fmt.Errorf("%w: %s", errGaveUp, got.body)
	}
	var trip struct {
		Driver string
		ETA    time.Duration
	}
	if err := json.Unmarshal(got.body, &trip); err != nil || got.status != http.StatusOK || !driverID.MatchString(trip.Driver) || trip.ETA <= 0 {
		return fmt.Errorf("%w: %d %.200s", errAnswer, got.status, got.body)
	}
	for name := range got.header {
		if strings.HasPrefix(strings.ToLower(name), ficPrefix) {
			return fmt.Errorf("%w: it has the header %s", errAnswer, name)
		}
	}
	return nil
}

// dispatches are those of one client that takes no part in the campaign, one after the
// other, as fast as it goes.
type dispatches struct {
	ended context.CancelFunc
	done  chan struct{}
	// What has become of them; read after done.
	right, gaveUp int
	failures      []string
}

// startDispatches has them sent until stop, which lets the last one come to its end.
func startDispatches(t *testing.T, env *Env) *dispatches {
	t.Helper()
	ctx, ended := context.WithCancel(t.Context())
	d := &dispatches{ended: ended, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		for i := 0; ctx.Err() == nil; i++ {
			switch err := ordinaryDispatch(t.Context(), env.URL, i%2 == 0); {
			case err == nil:
				d.right++
			case errors.Is(err, errGaveUp):
				d.gaveUp++
			case t.Context().Err() != nil:
				return // cut off: says nothing
			default:
				d.failures = append(d.failures, err.Error())
			}
		}
	}()
	// The context of a test ends before this.
	t.Cleanup(func() { <-d.done })
	return d
}

func (d *dispatches) stop() {
	d.ended()
	<-d.done
}
