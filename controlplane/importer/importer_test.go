package importer

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/proto/valid"
)

var update = flag.Bool("update", false, "write the golden files anew")

// show writes all that was imported, for golden files.
func show(t *testing.T, in *Imported) string {
	t.Helper()
	spec := in.Campaign("")
	if p := valid.CampaignSpec(spec); len(p) > 0 {
		t.Errorf("no valid campaign: %v", p)
	}
	campaign, err := campaignfile.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	topo, err := TopologyYAML(in.Topology)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topology.Parse(topo); err != nil {
		t.Errorf("no valid topology: %v", err)
	}
	return "# campaign.yaml\n" + string(campaign) + "# topology.yaml\n" + string(topo) + "# notes\n" + strings.Join(in.Notes, "\n") + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", name, diff)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHAR(t *testing.T) {
	b := read(t, "shop.har")
	got, err := HAR(append([]byte("\xef\xbb\xbf"), b...), 0, "/checkout")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "har.txt", show(t, got))

	if got, err = HAR(b, 1, ""); err != nil || got.Request.GetUrl() != "https://shop.example/" || got.Request.GetMethod() != "" {
		t.Errorf("entry 1: %v, %v", got, err)
	}
	for _, test := range []struct {
		name, text string
		entry      int
		match      string
		want       string
	}{
		{"not JSON", "<html>", 0, "", "not a HAR file"},
		{"empty", `{"log":{"entries":[]}}`, 0, "", "no entries"},
		{"another JSON", `{"data":[]}`, 0, "", "no entries"},
		{"several", string(b), 0, "", "choose one of these entries by its number:\n  1: GET https://shop.example/ (200)\n  2: POST"},
		{"none fits", string(b), 0, "/nope", `no entry's URL contains "/nope"`},
		{"no such entry", string(b), 9, "", "there is no entry 9: the HAR file has 4"},
		{"below zero", string(b), -1, "", "there is no entry -1"},
		{"multipart", string(b), 3, "", "multipart form"},
		{"another scheme", string(b), 4, "", "no http request: data:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := HAR([]byte(test.text), test.entry, test.match)
			if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestJaeger(t *testing.T) {
	for _, name := range []string{"ride", "old-tags", "no-server"} {
		t.Run(name, func(t *testing.T) {
			got, err := Jaeger(read(t, name+".json"), "")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", show(t, got))
		})
	}
	if _, err := Jaeger(read(t, "ride.json"), "00000000000000000000000000000ABC"); err != nil {
		t.Errorf("a trace by its id: %v", err)
	}
	for _, test := range []struct{ name, text, id, want string }{
		{"not JSON", "x", "", "not Jaeger's JSON"},
		{"no traces", `{"data":[]}`, "", "no traces"},
		{"no spans", `{"data":[{"traceID":"1"}]}`, "", "no spans"},
		{"no such trace", string(read(t, "ride.json")), "77", "no trace 77"},
		{
			"no request", `{"data":[{"traceID":"1","spans":[{"spanID":"1","operationName":"job","processID":"p"}],"processes":{"p":{"serviceName":"cron"}}}]}`, "",
			`the root span "job" of cron is no HTTP request`,
		},
		{
			"bad URL", `{"data":[{"traceID":"1","spans":[{"spanID":"1","tags":[{"key":"http.url","value":"http://a b/%zz"}],"processID":"p"}],"processes":{"p":{"serviceName":"a"}}}]}`, "",
			"the root span's URL",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Jaeger([]byte(test.text), test.id)
			if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func FuzzHAR(f *testing.F) {
	b, err := os.ReadFile("testdata/shop.har")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, 0)
	f.Add(b, 2)
	f.Fuzz(func(t *testing.T, b []byte, entry int) {
		if _, err := HAR(b, entry, ""); err != nil && !errors.Is(err, ErrInput) {
			t.Errorf("%v does not wrap ErrInput", err)
		}
	})
}

func FuzzJaeger(f *testing.F) {
	for _, name := range []string{"ride", "old-tags", "no-server"} {
		b, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Jaeger(b, "")
		if err != nil {
			if !errors.Is(err, ErrInput) {
				t.Errorf("%v does not wrap ErrInput", err)
			}
			return
		}
		_ = got.Campaign("")
	})
}
