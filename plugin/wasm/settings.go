package wasm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Settings are what the VM configuration sets: a text of `name=value` fields
// with blanks between them. All are optional.
type Settings struct {
	// GCPercent is handed to debug.SetGCPercent; `gc=off` is -1, which Envoy
	// before 1.39 needs (golang/go#78513). 0: the runtime's own default.
	GCPercent int
	// Buckets and Slots bound the trial table: `table=BUCKETSxSLOTS`.
	Buckets, Slots int
	// Hold is how long a held answer may take to end before it is let go: `hold=5s`.
	Hold time.Duration
}

// Defaults of [Settings].
const (
	DefaultBuckets = 1024
	DefaultSlots   = 8
	DefaultHold    = 5 * time.Second
)

// ErrSettings says that the VM configuration has a field that cannot be read.
var ErrSettings = errors.New("bad VM configuration")

// ParseSettings reads the VM configuration. What cannot be read keeps its default.
//
// Errors: ErrSettings, joined with one for each bad field.
func ParseSettings(b []byte) (Settings, error) {
	s := Settings{Buckets: DefaultBuckets, Slots: DefaultSlots, Hold: DefaultHold}
	var bad []error
	for field := range strings.FieldsSeq(string(b)) {
		name, value, _ := strings.Cut(field, "=")
		if err := s.set(name, value); err != nil {
			bad = append(bad, fmt.Errorf("%w: %s: %w", ErrSettings, field, err))
		}
	}
	return s, errors.Join(bad...)
}

func (s *Settings) set(name, value string) error {
	switch name {
	case "gc":
		if value == "off" {
			s.GCPercent = -1
			return nil
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return errors.New("want off or a percentage from 1")
		}
		s.GCPercent = n
	case "table":
		b, n, _ := strings.Cut(value, "x")
		buckets, err1 := strconv.Atoi(b)
		slots, err2 := strconv.Atoi(n)
		if err1 != nil || err2 != nil || buckets < 1 || buckets > math.MaxUint16 || slots < 1 || slots > math.MaxUint8 {
			return errors.New("want BUCKETSxSLOTS, as 1024x8")
		}
		s.Buckets, s.Slots = buckets, slots
	case "hold":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return errors.New("want a duration, as 5s")
		}
		s.Hold = d
	default:
		return errors.New("unknown field; known are gc, table and hold")
	}
	return nil
}
