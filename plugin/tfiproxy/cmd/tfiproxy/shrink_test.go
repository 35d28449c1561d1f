package main

import (
	"os"
	"slices"
	"testing"
)

func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00000000 fe:00 10562552                           /bin/tfiproxy
Size:               1024 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00500000-00600000 r--p 00100000 fe:00 10562552                           /bin/tfiproxy
Anonymous:             4 kB
00600000-00700000 r--p 00200000 fe:00 10562552                           /bin/tfiproxy
Anonymous:             0 kB
AnonHugePages:         0 kB
00700000-00800000 rw-p 00300000 fe:00 10562552                           /bin/tfiproxy
Anonymous:             0 kB
00800000-00900000 r--p 00000000 fe:00 1                                  /lib/x
Anonymous:             0 kB
00900000-00a00000 r--p 00000000 00:00 0
Anonymous:             0 kB
00b00000-00a00000 r--p 00000000 fe:00 10562552                           /bin/tfiproxy
Anonymous:             0 kB
00c00000-00d00000 r--p 00000000 fe:00 10562552                           /bin/tfiproxy (deleted)
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x500000}, {0x600000, 0x700000}}
	if got := cleanMappings([]byte(smaps), "/bin/tfiproxy"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	// This very program has code that is clean, and goes on without it.
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Skip("no /proc")
	}
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	if len(cleanMappings(b, self)) == 0 {
		t.Error("no code found")
	}
	shrink()
}
