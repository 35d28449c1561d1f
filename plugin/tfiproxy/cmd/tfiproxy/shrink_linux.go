package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// shrink gives back the pages of the program's own file that starting up has
// touched: the runtime walks its tables, packages initialise, and the kernel maps what lies
// around. What is used again comes back from the page cache, the rest stays out of
// the process. A mapping with a page of the process's own in it, as of a binary that
// was relocated, is left alone, and so is everything where something is odd.
func shrink() {
	file, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range cleanMappings(maps, file) {
		// An error leaves the pages where they are.
		_, _, _ = syscall.RawSyscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED)
	}
}

// mapping is a part of the address space.
type mapping struct{ start, end uintptr }

// cleanMappings finds in smaps (proc(5)) the mappings of a file that cannot be
// written, and of which all pages are the file's.
func cleanMappings(smaps []byte, file string) []mapping {
	var found []mapping
	var m mapping
	ours := false
	for line := range bytes.Lines(smaps) {
		f := bytes.Fields(line)
		switch {
		case len(f) >= 5 && bytes.IndexByte(f[0], '-') > 0: // address perms offset dev inode path
			start, end, _ := bytes.Cut(f[0], []byte("-"))
			a, err := strconv.ParseUint(string(start), 16, 64)
			b, err2 := strconv.ParseUint(string(end), 16, 64)
			perms := string(f[1])
			ours = err == nil && err2 == nil && a < b && len(f) == 6 && string(f[5]) == file && (perms == "r-xp" || perms == "r--p")
			m = mapping{uintptr(a), uintptr(b)}
		case ours && len(f) == 3 && string(f[0]) == "Anonymous:":
			if string(f[1]) == "0" {
				found = append(found, m)
			}
			ours = false
		}
	}
	return found
}
