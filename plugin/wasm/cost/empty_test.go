package main

import (
	"testing"

	"github.com/tetratelabs/wazero"
)

func TestEmptyFilter(t *testing.T) {
	r := wazero.NewRuntime(t.Context())
	defer r.Close(t.Context())
	m, err := r.Instantiate(t.Context(), emptyFilter())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"proxy_on_configure": 1, "proxy_on_done": 1, "proxy_on_request_headers": 0} {
		f := m.ExportedFunction(name)
		got, err := f.Call(t.Context(), make([]uint64, len(f.Definition().ParamTypes()))...)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s = %v, %v; want %d", name, got, err, want)
		}
	}
}
