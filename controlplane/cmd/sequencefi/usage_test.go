package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestWrongFlagsAndFiles has what the user must put right, before anything is started.
func TestWrongFlagsAndFiles(t *testing.T) {
	dir := t.TempDir()
	topo := write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop, sidecar: tfiproxy}]\n")
	good := write(t, filepath.Join(dir, "good.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	list := write(t, filepath.Join(dir, "list.yaml"), "[]")
	folder := write(t, filepath.Join(dir, "folder", "topology.yaml"), "services: [{name: shop, sidecar: tfiproxy, app: '127.0.0.1:1', inbound: '127.0.0.1:2'}]\npolicyToken: .\n")
	start := []string{"run", good, "--out", filepath.Join(dir, "out"), "--otlp", "127.0.0.1:0", "--policy", "127.0.0.1:0"}
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"run", good, "--otlp", "bogus"}, `--otlp must be host:port to listen on, not "bogus"`},
		{[]string{"check", good, "--otlp-grpc", "bogus"}, "--otlp-grpc must be host:port"},
		{[]string{"plan", good, "--xds", "[::1]"}, "--xds must be host:port"},
		{[]string{"serve", "--topology", topo, "--policy", "1.2.3.4:99999"}, "--policy must be host:port"},
		{[]string{"replay", "testdata/replay.yaml", "--module", "x:y:z"}, "--module must be host:port"},
		{[]string{"run", good, "--wait", "-3s"}, "--wait must not be negative, not -3s"},
		{[]string{"run", good, "--solver", "bogus"}, `--solver must be host:port of a solver service, not "bogus": start one by`},
		{[]string{"run", good, "--solver", ":18080"}, "--solver must be host:port"},
		{[]string{"run", good, "--solver", "127.0.0.1:http2"}, "--solver must be host:port"},
		{[]string{"run", good, "--solver", "ftp://127.0.0.1:1"}, "--solver must be host:port"},
		{append(start, "--forward", "ftp://x"), `"ftp://x": an OTLP/HTTP address`},
		{append(start, "--policy-token", "/dev/zero"), "/dev/zero: must be a regular file"},
		{append(start, "--policy-token", dir), dir + ": is a directory"},
		{[]string{"run", dir}, "is a directory"},
		{[]string{"replay", dir}, "is a directory"},
		{[]string{"serve", "--topology", dir}, "is a directory"},
		{[]string{"init", "--har", dir, "--dir", filepath.Join(dir, "new")}, "is a directory"},
		{[]string{"init", "--curl", "", "--dir", filepath.Join(dir, "new")}, "--curl is empty"},
		{[]string{"init", "--curl", "", "--har", ""}, "--curl is empty"},
		{[]string{"tfiproxy", "config", "shop", "--topology", folder}, "is a directory"},
		{[]string{"solve", list, "--limit", "-5"}, "--limit must not be negative, not -5"},
		{[]string{"solve", list}, "found array"},
		{[]string{"init", "--har", list, "--dir", filepath.Join(dir, "new")}, "an object is wanted, found array"},
		{[]string{"init", "--jaeger", list, "--dir", filepath.Join(dir, "new")}, "an object is wanted, found array"},
		{[]string{"run", list}, "not a list"},
		{[]string{"run", good, "--topology", list}, "a mapping is wanted"},
	} {
		t.Run(strings.ReplaceAll(strings.Join(test.args, " "), dir, ""), func(t *testing.T) {
			r := call(t, test.args...)
			r.expect(t, exitUsage, test.says)
			for _, internal := range []string{"Go value", "importer.", "ECDS"} {
				if strings.Contains(r.errors, internal) {
					t.Errorf("it says %q:\n%s", internal, r.errors)
				}
			}
		})
	}
}
