package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The targets of bench/datapath, which measures them at full size: memory of a sidecar
// that is idle, and with 10,000 idle connections.
const (
	idleKiB        = 6 << 10
	connectionsKiB = 60 << 10
)

// resident is a process's resident memory in KiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("no size in %s", b)
	}
	n, _ := strconv.Atoi(string(m[1])) // digits
	return n
}

// settles waits until a process takes at most limit KiB.
func settles(t *testing.T, pid, limit int, within time.Duration) {
	t.Helper()
	n := resident(t, pid)
	for end := time.Now().Add(within); n > limit && time.Now().Before(end); n = resident(t, pid) {
		time.Sleep(50 * time.Millisecond)
	}
	if n > limit {
		t.Errorf("%d KiB, want at most %d", n, limit)
	}
	t.Logf("%d KiB", n)
}

const (
	request = "GET / HTTP/1.1\r\nHost: a\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"
	answer  = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
)

// startBetween runs the program in front of a callee that answers every read, and
// returns its process and its port.
func startBetween(t *testing.T) (pid int, port string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 1024)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					if _, err := io.WriteString(c, answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	config := fmt.Sprintf(`{"service":"a","workers":1,"inbound":[{"listen":"127.0.0.1:0","upstream":%q}]}`, l.Addr())
	cmd, o := start(t, build(t, "-ldflags=-s -w"), writeConfig(t, config))
	return cmd.Process.Pid, o.address(t, "listening")
}

func exchange(c net.Conn, room []byte) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, room[:len(answer)]); err != nil {
		return err
	}
	if !bytes.Equal(room[:len(answer)], []byte(answer)) {
		return fmt.Errorf("answer %q", room[:len(answer)])
	}
	return nil
}

// connect opens connections that close when the test ends.
func connect(t *testing.T, port string, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", port)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns[i] = c
	}
	return conns
}

// TestIdleConnections has some connections wait for their next request, and then a
// few more. Each takes no more than its share of what the target allows 10,000.
func TestIdleConnections(t *testing.T) {
	pid, port := startBetween(t)
	room := make([]byte, len(answer))
	connections := 0
	for _, more := range []int{1700, 300} {
		for i, c := range connect(t, port, more) {
			if err := exchange(c, room); err != nil {
				t.Fatalf("connection %d: %v", connections+i, err)
			}
		}
		connections += more
		settles(t, pid, idleKiB+(connectionsKiB-idleKiB)*connections/10_000, 30*time.Second)
	}
}

// TestMemoryStays sends many requests: a sidecar takes no more after them than after
// the first ones.
func TestMemoryStays(t *testing.T) {
	pid, port := startBetween(t)
	conns := connect(t, port, 16)
	load := func(requests int) int {
		errs := make(chan error, len(conns))
		var wg sync.WaitGroup
		for _, c := range conns {
			wg.Go(func() {
				room := make([]byte, len(answer))
				for range requests / len(conns) {
					if err := exchange(c, room); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-errs:
			t.Fatal(err)
		default:
		}
		return resident(t, pid)
	}
	const slack = 256 // KiB: pages that come and go
	first := load(5_000)
	last := load(50_000)
	if last > first+slack {
		t.Errorf("%d KiB after 5,000 requests, %d after 55,000", first, last)
	}
	t.Logf("%d KiB, then %d", first, last)
}
