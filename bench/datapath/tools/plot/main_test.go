package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const samples = `round,workload,name,proxy,requests,requests_per_second,cpu_us_per_request
0,get-0-c1,n,tfiproxy,10,1000,30
1,get-0-c1,n,tfiproxy,10,1000,50
0,get-0-c8,n,tfiproxy,10,9000,10
0,get-0-c1,n,direct,10,9000,0
0,get-0-c8,n,direct,10,19000,0
0,get-0-c8-trial,n,tfiproxy,10,9000,1000
0,unary-0-c8,n,tfiproxy,10,9000,3
`

// TestDraw draws what there is a line for, as well-formed SVG.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"samples.csv": samples,
		"latency.csv": "round,workload,proxy,p50_us,p99_us\n0,get-0-c16-r500,nginx,100,300\n0,get-0-c16-r2000,nginx,90,400\n",
		"memory.csv":  "proxy,when,rss_bytes\ntfiproxy,idle,5000000\nnginx,idle,9000000\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if code := doMain([]string{dir}, &out); code != 0 {
		t.Fatalf("code %d: %s", code, out.String())
	}
	for name, proxies := range map[string][]string{
		"cpu-http1":  {"tfiproxy"},
		"rate-http1": {"tfiproxy", "direct"},
		"p50-http1":  {"nginx"},
		"p99-http1":  {"nginx"},
		"memory":     {"tfiproxy", "nginx"},
		"cpu-unary":  nil, // one point is no line
	} {
		b, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		if proxies == nil {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		d := xml.NewDecoder(bytes.NewReader(b))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		for _, p := range proxies {
			if !strings.Contains(string(b), ">"+p+"<") {
				t.Errorf("%s has no %s", name, p)
			}
		}
	}
}

func TestPointsAreMedians(t *testing.T) {
	file := filepath.Join(t.TempDir(), "samples.csv")
	if err := os.WriteFile(file, []byte(samples), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readSamples(file)
	if err != nil {
		t.Fatal(err)
	}
	f := figure{rows: choose(all, "get", 0, anyNumber), at: byConnections, value: column("cpu_us_per_request")}
	got := f.points("tfiproxy")
	if len(got) != 2 || got[0].X != 1 || got[0].Y != 40 || got[1].X != 8 || got[1].Y != 10 {
		t.Errorf("%v", got)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"-nonsense"}, {"a", "b"}} {
		if code := doMain(args, io.Discard); code != 64 {
			t.Errorf("%q: code %d", args, code)
		}
	}
	var out bytes.Buffer
	if code := doMain([]string{t.TempDir()}, &out); code != 1 || !strings.Contains(out.String(), "samples.csv") {
		t.Errorf("code %d: %s", code, out.String())
	}
}
