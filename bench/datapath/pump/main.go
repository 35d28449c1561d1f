// Command pump passes bytes both ways between two sockets and understands none of
// them: the least that a process in between can cost, if it copies them. It is a
// program of its own so that its memory is no more than that either.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stderr)) }

func doMain(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("pump", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "", "addresses (host:port), separated by commas")
	upstream := flags.String("upstream", "", "where the connections of each go, in the same order")
	if err := flags.Parse(args); err != nil {
		return 64
	}
	from, to := strings.Split(*listen, ","), strings.Split(*upstream, ",")
	if len(from) != len(to) {
		fmt.Fprintf(stderr, "pump: %d addresses and %d upstreams\n", len(from), len(to))
		return 64
	}
	errs := make(chan error)
	for i := range from {
		go func() { errs <- serve(from[i], to[i]) }()
	}
	fmt.Fprintln(stderr, "pump:", <-errs)
	return 1
}

func serve(listen, upstream string) error {
	l, err := net.Listen("tcp", listen) //nolint:noctx // for as long as the process lives
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go pump(c, upstream)
	}
}

func pump(c net.Conn, upstream string) {
	defer c.Close()
	up, err := net.Dial("tcp", upstream) //nolint:noctx // loopback, at once
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		pass(up, c)
		_ = up.Close() // ends the other way
	}()
	pass(c, up)
}

// buffer holds what the kernel gives at once for most answers.
const buffer = 32 << 10

// pass copies by read and write: io.Copy would splice, which costs small messages
// two system calls more.
func pass(to, from net.Conn) {
	b := make([]byte, buffer)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
