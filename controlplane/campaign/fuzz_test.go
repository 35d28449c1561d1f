package campaign

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzParseReplay: a file from anywhere is read or refused, and what is read can be
// written and read again.
func FuzzParseReplay(f *testing.F) {
	seeds, err := filepath.Glob("testdata/replay/*.yaml")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, path := range seeds {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, _, err := ParseReplay(b)
		if err != nil {
			return
		}
		again, err := MarshalReplay(r)
		if err != nil {
			t.Fatalf("%v in what was read", err)
		}
		if _, _, err := ParseReplay(again); err != nil {
			t.Fatalf("%v in what was written:\n%s", err, again)
		}
	})
}
