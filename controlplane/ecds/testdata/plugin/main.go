// The plugin of the plane's own tests: it answers every request that reaches it
// with what it was told, so that a test sees which policy is in force.
package main

import (
	"encoding/hex"
	"runtime/debug"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

func init() { proxywasm.SetVMContext(&vm{}) }

type vm struct {
	types.DefaultVMContext
	configuration []byte
}

func (v *vm) OnVMStart(int) types.OnVMStartStatus {
	v.configuration, _ = proxywasm.GetVMConfiguration()
	if string(v.configuration) == "gc=off" {
		debug.SetGCPercent(-1)
	}
	return types.OnVMStartStatusOK
}

func (v *vm) NewPluginContext(uint32) types.PluginContext { return &plugin{vm: v} }

type plugin struct {
	types.DefaultPluginContext
	vm            *vm
	configuration []byte
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	p.configuration, _ = proxywasm.GetPluginConfiguration()
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	_ = proxywasm.SendHttpResponse(299, [][2]string{
		{"x-vm-configuration", string(s.plugin.vm.configuration)},
	}, []byte(hex.EncodeToString(s.plugin.configuration)), -1)
	return types.ActionPause
}
