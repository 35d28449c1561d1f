package wasm

import (
	"testing"

	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

func mapOf(pairs ...[2]string) *headerMap { return readMap(host.AppendPairs(nil, pairs)) }

func readMap(b []byte) *headerMap {
	m := new(headerMap)
	m.read(b)
	return m
}

func TestHeaderMap(t *testing.T) {
	m := mapOf([2]string{":path", "/a"}, [2]string{"empty", ""}, [2]string{"twice", "1"}, [2]string{"twice", "2"}, [2]string{"last", "z"})
	for _, c := range []struct {
		name, want string
		ok         bool
	}{{":path", "/a", true}, {"empty", "", true}, {"twice", "1", true}, {"last", "z", true}, {"las", "", false}, {"", "", false}} {
		if v, ok := m.Header(c.name); v != c.want || ok != c.ok {
			t.Errorf("%q: %q %v, want %q %v", c.name, v, ok, c.want, c.ok)
		}
	}
	if n := testing.AllocsPerRun(100, func() { m.Header("last") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzHeaderMap(f *testing.F) {
	f.Add(mapOf([2]string{"a", "b"}).b, "a")
	f.Add(mapOf([2]string{"a", "b"}, [2]string{"c", "dd"}).b[:20], "c")
	f.Add([]byte{255, 255, 255, 255}, "")
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 127}, "x")
	f.Fuzz(func(_ *testing.T, b []byte, name string) { readMap(b).Header(name) })
}

func TestGRPCContentTypes(t *testing.T) {
	for text, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc; charset=x": true,
		"application/grpc-web": false, "application/grpc-web+proto": false, "application/json": false, "": false,
	} {
		if isGRPC(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestPercentEncode(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain text!": "plain text!", "50% full": "50%25 full", "ü\n": "%C3%BC%0A",
	} {
		if got := percentEncode(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestGRPCStatusOfHTTP(t *testing.T) {
	for status, want := range map[int]int{200: 2, 400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14, 500: 2} {
		if got := grpcStatusOf(status); got != want {
			t.Errorf("%d: %d, want %d", status, got, want)
		}
	}
}
