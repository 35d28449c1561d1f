package wasm

import (
	"errors"
	"fmt"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// fenceName is the cell of the deadlines. They are shared so that they outlive a
// VM: what is read again after a reload lives no longer than when it was read first.
const fenceName = "sequencefi.fence"

// fenceRecord keeps the deadlines of the activations in shared data.
type fenceRecord struct {
	cells cells
}

// admit takes note of a policy that is read now, and returns the deadlines of its
// activations. On an error the fence still holds what this VM knows.
func (f *fenceRecord) admit(p *tfi.Policy, now time.Duration) (*tfi.Fence, error) {
	fence := new(tfi.Fence)
	for range swapTries {
		b, version, err := f.cells.Get(fenceName)
		if err != nil {
			fence.Admit(p, now)
			return fence, fmt.Errorf("read %s: %w", fenceName, err)
		}
		if len(b) > 0 {
			// One that cannot be read is empty, and every activation starts now.
			_ = fence.UnmarshalBinary(b)
		}
		if !fence.Admit(p, now) {
			return fence, nil
		}
		b, err = fence.AppendBinary(nil)
		if err != nil {
			return fence, err
		}
		switch err := f.cells.Swap(fenceName, b, version); {
		case err == nil:
			return fence, nil
		case !errors.Is(err, errSwapped):
			return fence, fmt.Errorf("write %s: %w", fenceName, err)
		}
		*fence = tfi.Fence{}
	}
	return fence, fmt.Errorf("%w: %s", errContended, fenceName)
}
