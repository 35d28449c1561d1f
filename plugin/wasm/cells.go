package wasm

import (
	"errors"

	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// cells are named values that all VMs of the process share.
type cells interface {
	// Get returns a value, which is the caller's until its callback is over, and its
	// version. A value that is absent is empty, with the version absentCell.
	Get(name string) (value []byte, version uint32, err error)
	// Swap sets a value if its version is still the given one. Errors: errSwapped.
	Swap(name string, value []byte, version uint32) error
}

var (
	// errSwapped says that another worker was faster.
	errSwapped = errors.New("changed by another worker")
	// errContended says that others were faster every time, which means that
	// compare-and-swap does not work here.
	errContended = errors.New("shared data: always changed by another worker")
)

// swapTries bounds the attempts of one change. Each that fails means that some
// other worker's has succeeded.
const swapTries = 1000

// absentCell is the version of what does not exist. To the host 0 would mean
// "whatever is there"; any other number creates a value that does not exist, and
// does not match the version of one that has been created meanwhile, since the
// host counts versions up from 1.
const absentCell = 1 << 31

// hostCells is proxy-wasm shared data. It has neither list nor delete, and its
// keys are the process's (of one vm_id), whatever VM or policy set them.
type hostCells struct{}

var _ cells = hostCells{}

// Get implements cells.
func (hostCells) Get(name string) ([]byte, uint32, error) {
	v, version, err := host.SharedData(name)
	if errors.Is(err, host.ErrNotFound) {
		return nil, absentCell, nil
	}
	return v, version, err
}

// Swap implements cells.
func (hostCells) Swap(name string, value []byte, version uint32) error {
	err := host.SetSharedData(name, value, version)
	if errors.Is(err, host.ErrSwapped) {
		return errSwapped
	}
	return err
}
