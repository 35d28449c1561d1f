package wasm

import "time"

// timer is something to do with a stream at a later time. It lies in its stream,
// which has at most one.
type timer struct {
	due    time.Duration
	stream *stream
	then   timerAction
	at     int // its place in the heap, from 1; 0: not armed
}

type timerAction uint8

const (
	thenResumeRequest timerAction = iota
	thenResumeResponse
	thenReset
	thenLetGo
)

// timers is a heap of timers, earliest first. Several thousand streams may be
// delayed at once, and any of them may go away before its time.
type timers []*timer

func (h *timers) add(t *timer) {
	*h = append(*h, t)
	t.at = len(*h)
	h.up(t.at - 1)
}

// remove takes t out, if it is in.
func (h *timers) remove(t *timer) {
	if t.at == 0 {
		return
	}
	i, last := t.at-1, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	t.at = 0
	if i < last {
		h.down(i)
		h.up(i)
	}
}

// next takes out a timer that is due; nil: none is.
func (h *timers) next(now time.Duration) *timer {
	if len(*h) == 0 || (*h)[0].due > now {
		return nil
	}
	t := (*h)[0]
	h.remove(t)
	return t
}

func (h timers) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i+1, j+1
}

func (h timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].due <= h[i].due {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h timers) down(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h) && h[child].due < h[least].due {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
