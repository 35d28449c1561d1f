package wasm

// crash panics if a test wants that to happen at a place in a call with that path;
// nil but in tests.
var crash func(where, path string)

func (s *stream) crashAt(where string) {
	if crash != nil {
		crash(where, s.path())
	}
}

// path of the call, if it belongs to a trial.
func (s *stream) path() string {
	if s.call.Record() == nil {
		return ""
	}
	return string(s.call.Record().Path)
}
