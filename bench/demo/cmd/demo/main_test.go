package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoMain gives what needs no program.
func TestDoMain(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		text string
	}{
		{name: "help", args: []string{"--help"}, code: 0, text: "--jaeger"},
		{name: "unknown flag", args: []string{"--fast"}, code: exitUsage, text: "not defined: -fast"},
		{name: "unknown proxy", args: []string{"--proxy", "nginx"}, code: exitUsage, text: `envoy, tfiproxy or mixed, not "nginx"`},
		{name: "argument", args: []string{"hotrod"}, code: exitUsage, text: `"hotrod" is not a flag`},
		{name: "not built", args: []string{"--sequencefi", "/no/such/command"}, code: exitFailed, text: "make build"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			if code := doMain(tc.args, out, out); code != tc.code {
				t.Errorf("exit code %d", code)
			}
			text, err := os.ReadFile(out.Name())
			if err != nil || !strings.Contains(string(text), tc.text) {
				t.Errorf("%v %s", err, text)
			}
		})
	}
}
