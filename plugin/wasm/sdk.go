//go:build !wasm

package wasm

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// The SDK's interfaces, for its emulator, which runs the filter as Go code.

type (
	sdkVM struct {
		types.DefaultVMContext
		vm *vm
	}
	sdkRoot struct {
		types.DefaultPluginContext
		vm *vm
		id uint32
	}
	sdkStream struct {
		types.DefaultHttpContext
		vm *vm
		id uint32
	}
)

// NewVM returns the filter for the SDK's emulator.
func NewVM() types.VMContext { return &sdkVM{vm: newVM()} }

func (v *sdkVM) OnVMStart(int) types.OnVMStartStatus {
	v.vm.start()
	return types.OnVMStartStatusOK
}

func (v *sdkVM) NewPluginContext(id uint32) types.PluginContext {
	host.Answered = func(numHeaders int) { v.vm.callAnswered(id, numHeaders) }
	v.vm.contextCreate(id, 0)
	return &sdkRoot{vm: v.vm, id: id}
}

func (r *sdkRoot) OnPluginStart(int) types.OnPluginStartStatus {
	r.vm.configure(r.id)
	return types.OnPluginStartStatusOK
}

func (r *sdkRoot) OnPluginDone() bool {
	r.vm.done(r.id)
	return true
}

func (r *sdkRoot) OnTick() { r.vm.tick(r.id) }

func (r *sdkRoot) NewHttpContext(id uint32) types.HttpContext { //nolint:revive // the SDK names it
	r.vm.contextCreate(id, r.id)
	return &sdkStream{vm: r.vm, id: id}
}

func (s *sdkStream) OnHttpRequestHeaders(int, bool) types.Action { //nolint:revive // the SDK names it
	return types.Action(s.vm.requestHeaders(s.id))
}

func (s *sdkStream) OnHttpRequestTrailers(int) types.Action { //nolint:revive // the SDK names it
	return types.Action(s.vm.requestTrailers())
}

func (s *sdkStream) OnHttpResponseHeaders(_ int, end bool) types.Action { //nolint:revive // the SDK names it
	return types.Action(s.vm.responseHeaders(s.id, end))
}

func (s *sdkStream) OnHttpResponseBody(size int, end bool) types.Action { //nolint:revive // the SDK names it
	return types.Action(s.vm.responseBody(s.id, size, end))
}

func (s *sdkStream) OnHttpResponseTrailers(int) types.Action { //nolint:revive // the SDK names it
	return types.Action(s.vm.responseTrailers(s.id))
}

func (s *sdkStream) OnHttpStreamDone() { s.vm.done(s.id) } //nolint:revive // the SDK names it
