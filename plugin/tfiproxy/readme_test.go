package tfiproxy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme says that the tests which the README names are there.
func TestReadme(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "cmd/tfiproxy/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(b)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Z0-9]\\w*)`").FindAllStringSubmatch(string(readme), -1)
	if len(names) < 30 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, m := range names {
		if !strings.Contains(code.String(), "\nfunc "+m[1]+"(") {
			t.Errorf("there is no %s", m[1])
		}
	}
}
