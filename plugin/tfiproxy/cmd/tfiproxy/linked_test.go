package main

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// forbidden are packages that must not be in the binary: the path of every message
// goes through none of them, and their memory is the sidecar's.
var forbidden = regexp.MustCompile(`(^|[^\w/])(` + strings.Join([]string{
	`net/http`,
	`golang\.org/x/net/http2`, // but for HPACK; see allowed
	`google\.golang\.org/(grpc|protobuf|genproto)`,
	`github\.com/sequencefi/sequencefi/(proto|controlplane|solver|bench|plugin/wasm)`,
}, "|") + `)($|[./])`)

// allowed are parts of these that are small, and stand alone.
var allowed = regexp.MustCompile(`golang\.org/x/net/http2/hpack($|\.)|` +
	`google\.golang\.org/protobuf/(encoding/protowire|internal/(detrand|errors))($|\.)`)

// bad reports whether a package, or a symbol's name, belongs to what is forbidden.
func bad(name string) bool { return forbidden.MatchString(allowed.ReplaceAllString(name, "")) }

// TestLinked looks at what the program imports, and at the symbols of the binary.
func TestLinked(t *testing.T) {
	for name, want := range map[string]bool{
		"net/http": true, "net/http.(*Client).Do": true, "type:.eq.net/http.Header": true, "net/http/internal.x": true,
		"golang.org/x/net/http2.(*Framer).ReadFrame": true, "golang.org/x/net/http2/hpack.(*Decoder).Write": false,
		"google.golang.org/grpc/codes.Code.String": true, "go:itab.*google.golang.org/protobuf/proto.x,error": true,
		"google.golang.org/protobuf/encoding/protowire.ConsumeTag": false, "vendor/golang.org/x/net/http/httpguts.x": false,
		"github.com/sequencefi/sequencefi/plugin/tfi.x": false, "github.com/sequencefi/sequencefi/proto/x": true,
	} {
		if bad(name) != want {
			t.Errorf("%s: %v, want %v", name, !want, want)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if bad(p) {
			t.Errorf("%s is imported", p)
		}
	}
	out, err = exec.CommandContext(t.Context(), "go", "tool", "nm", build(t)).Output()
	if err != nil {
		t.Fatal(err)
	}
	symbols := 0
	for line := range strings.Lines(string(out)) {
		// address, kind, name
		f := strings.Fields(line)
		name := strings.Join(f[min(2, len(f)):], " ")
		symbols++
		if bad(name) {
			t.Errorf("%s is linked in", name)
		}
	}
	if symbols < 1000 || !strings.Contains(string(out), " main.doMain\n") {
		t.Errorf("%d symbols are not the binary's", symbols)
	}
}

// TestIdleMemory says what a sidecar costs that has nothing to do.
func TestIdleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	binary := build(t, "-ldflags=-s -w")
	if s, err := os.Stat(binary); err != nil || s.Size() > 8<<20 {
		t.Errorf("binary: %d bytes, %v", s.Size(), err)
	}
	config := writeConfig(t, `{"service":"a","admin":"127.0.0.1:0","inbound":[{"listen":"127.0.0.1:0","upstream":"127.0.0.1:9"}]}`)
	cmd, o := start(t, binary, config)
	o.address(t, "admin")
	// It has settled some time after it has begun to listen.
	settles(t, cmd.Process.Pid, idleKiB, 5*time.Second)
}
