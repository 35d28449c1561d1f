package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// table holds the states of trials where all workers of the sidecar share them.
//
// Shared data has no list, no delete and no lifetime, so there is a fixed set of
// cells. A trial's hash names its cell, and a cell holds the encoded states of a few
// trials, each behind its length. A change rewrites the whole cell by
// compare-and-swap: that makes lookup, insertion and reclaiming one atomic step
// without tombstones, at the price that trials that meet in a cell slow each other
// down. With 1,024 cells and some hundred live trials few meet.
type table struct {
	cells   cells
	names   []string
	touched []bool // cells that this VM has written
	slots   int
	now     func() time.Duration
	recent  [recentCells]*recentCell
	guess   versionGuess

	state tfi.State // scratch, of which nothing outlives a call
	buf   []byte
}

// recentCells is how many cells are remembered as this VM has left them: a trial
// takes several steps at a sidecar within milliseconds, mostly on one worker, and
// some dozen trials may take turns. Two in one place cost each other a reading.
const recentCells = 1024

// recentCell is a cell as this VM has left it, with one trial's state decoded.
type recentCell struct {
	cell    int
	valid   bool
	id      tfi.StateID
	state   tfi.State
	others  []byte // the encoded states of the other trials
	version uint32 // what the cell's version should be
}

var _ tfi.Store = (*table)(nil)

func newTable(c cells, buckets, slots int, now func() time.Duration) *table {
	return &table{cells: c, names: make([]string, buckets), touched: make([]bool, buckets), slots: slots, now: now}
}

// cell returns the number of the cell of id.
func (t *table) cell(id *tfi.StateID) int {
	h := uint64(14695981039346656037)
	for _, b := range id.Key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	for _, b := range id.Trace {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return int((h ^ h>>32) % uint64(len(t.names)))
}

func (t *table) name(cell int) string {
	if t.names[cell] == "" {
		// Short, so that Envoy's copy of it at every step needs no memory of its own.
		t.names[cell] = "sfi." + strconv.Itoa(len(t.names)) + "." + strconv.Itoa(cell)
	}
	return t.names[cell]
}

// Update implements [tfi.Store]. Expired states that share the cell go.
// Errors: tfi.ErrTableFull, errContended, and what the host says.
func (t *table) Update(id tfi.StateID, u tfi.Updater) error {
	cell := t.cell(&id)
	name := t.name(cell)
	r := t.recent[cell%recentCells]
	if r == nil {
		r = new(recentCell)
		t.recent[cell%recentCells] = r
	}
	if r.valid && r.cell == cell && r.id == id && t.guess.worthwhile() {
		err := t.step(name, r, u)
		if !errors.Is(err, errSwapped) {
			return err
		}
		t.guess.failed()
	}
	for range swapTries {
		value, version, err := t.cells.Get(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		t.guess.saw(version)
		r.cell, r.id, r.version = cell, id, version
		if err := t.load(r, value, t.time(u)); err != nil {
			return err
		}
		if err := t.step(name, r, u); !errors.Is(err, errSwapped) {
			return err
		}
	}
	return fmt.Errorf("%w: %s", errContended, name)
}

// step takes one step on a cell's state and writes the cell.
func (t *table) step(name string, r *recentCell, u tfi.Updater) error {
	r.valid = false // until it is written
	u.Apply(&r.state)
	t.buf = append(t.buf[:0], r.others...)
	at := len(t.buf)
	t.buf = append(t.buf, 0, 0, 0, 0)
	var err error
	if t.buf, err = r.state.AppendBinary(t.buf); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(t.buf[at:], uint32(len(t.buf)-at-4))
	switch err := t.cells.Swap(name, t.buf, r.version); {
	case errors.Is(err, errSwapped):
		return err
	case err != nil:
		return fmt.Errorf("write %s: %w", name, err)
	}
	t.touched[r.cell] = true
	r.version, r.valid = t.guess.wrote(), true
	return nil
}

// time asks the updater, which has just read the clock, if it can tell.
func (t *table) time(u tfi.Updater) time.Duration {
	if u, ok := u.(tfi.Timed); ok {
		return u.Now()
	}
	return t.now()
}

// load decodes a cell into r.
func (t *table) load(r *recentCell, value []byte, now time.Duration) error {
	r.valid = false
	r.state.Reset()
	r.others = r.others[:0]
	others := 0
	for rest := value; len(rest) > 0; {
		var b []byte
		if b, rest = cutState(rest); b == nil {
			break // damaged: what follows starts anew
		}
		of, deadline, ok := tfi.PeekState(b)
		switch {
		case !ok:
		case of == r.id:
			// A state that cannot be read starts anew, with a new tag.
			_ = r.state.UnmarshalBinary(b)
		case deadline > now:
			r.others = appendState(r.others, b)
			others++
		}
	}
	if others >= t.slots {
		return tfi.ErrTableFull
	}
	return nil
}

// take removes the states of trials that are over from the cells that this VM
// has written, and hands each to ended once it is out. Of several VMs that do so one gets
// a state.
func (t *table) take(over func(tfi.Key) bool, ended func(*tfi.State)) error {
	var errs []error
	for cell, touched := range t.touched {
		if touched {
			errs = append(errs, t.takeFrom(cell, over, ended))
		}
	}
	return errors.Join(errs...)
}

func (t *table) takeFrom(cell int, over func(tfi.Key) bool, ended func(*tfi.State)) error {
	name := t.name(cell)
	for range swapTries {
		value, version, err := t.cells.Get(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		var out [][]byte
		t.buf = t.buf[:0]
		now := t.now()
		for rest := value; len(rest) > 0; {
			var b []byte
			if b, rest = cutState(rest); b == nil {
				break
			}
			id, deadline, ok := tfi.PeekState(b)
			switch {
			case !ok:
			case over(id.Key):
				out = append(out, b)
			case deadline > now:
				t.buf = appendState(t.buf, b)
			}
		}
		if len(out) == 0 {
			t.touched[cell] = len(value) > 0
			return nil
		}
		err = t.cells.Swap(name, t.buf, version)
		if errors.Is(err, errSwapped) {
			continue
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		for _, b := range out {
			if t.state.UnmarshalBinary(b) == nil {
				ended(&t.state)
			}
		}
		t.touched[cell] = len(t.buf) > 0
		t.guess.wrote()
		return nil
	}
	return fmt.Errorf("%w: %s", errContended, name)
}

// cutState takes the first state off a cell; nil: it is damaged.
func cutState(cell []byte) (state, rest []byte) {
	if len(cell) < 4 {
		return nil, nil
	}
	n := binary.LittleEndian.Uint32(cell)
	if uint64(n) > uint64(len(cell)-4) {
		return nil, nil
	}
	return cell[4 : 4+n : 4+n], cell[4+n:]
}

func appendState(cell, state []byte) []byte {
	cell = binary.LittleEndian.AppendUint32(cell, uint32(len(state)))
	return append(cell, state...)
}
