package topology

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestParseGolden reads each file of testdata/in; testdata/out has the completed
// topology, or all problems.
func TestParseGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/in/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, in := range files {
		name := strings.TrimSuffix(filepath.Base(in), ".yaml")
		t.Run(name, func(t *testing.T) {
			top, err := Load(in)
			var got string
			if err != nil {
				if !errors.Is(err, ErrInvalid) {
					t.Fatalf("error does not wrap ErrInvalid: %v", err)
				}
				got = err.Error() + "\n"
			} else {
				j, err := json.MarshalIndent(top, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				got = string(j) + "\n"
			}
			out := filepath.Join("testdata/out", name+".txt")
			if *update {
				if err := os.WriteFile(out, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestMarshalRoundTrip(t *testing.T) {
	want, err := Load("testdata/in/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestExample: the example that users start from is valid.
func TestExample(t *testing.T) {
	if _, err := Load("../../deploy/standalone/topology.yaml"); err != nil {
		t.Error(err)
	}
}

func TestLoadErrors(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFileSize+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); !errors.Is(err, ErrInvalid) {
		t.Errorf("huge file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/in/*.yaml")
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		top, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error does not wrap ErrInvalid: %v", err)
			}
			return
		}
		if p := top.Validate(); len(p) > 0 {
			t.Fatalf("what was parsed is invalid: %v", p)
		}
		again, err := top.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again); err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, again)
		}
	})
}

// TestNativeDefaults: a topology with TFIProxies has an address for their polls, and a token
// file beside its own.
func TestNativeDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topology.yaml")
	for text, want := range map[string][2]string{
		"services: [{name: a}]": {},
		"services: [{name: a, sidecar: envoy}, {name: b, sidecar: tfiproxy}]": {DefaultPolicy, filepath.Join(filepath.Dir(path), "policy-token")},
		"{services: [{name: a, sidecar: tfiproxy}], policyToken: ../x/token}": {DefaultPolicy, filepath.Join(filepath.Dir(filepath.Dir(path)), "x/token")},
		"{services: [{name: a, sidecar: tfiproxy}], policy: \"127.0.0.1:1\"}": {"127.0.0.1:1", filepath.Join(filepath.Dir(path), "policy-token")},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		top, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]string{top.Policy, top.PolicyToken}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if top.Has(SidecarTFIProxy) != (want[0] != "") || top.Services[0].Kind() == "" {
			t.Errorf("%s: %+v", text, top)
		}
	}
}
