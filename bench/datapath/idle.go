package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

// holdIdle opens as many connections as listen says to upstream, each of which has
// one request answered, says so, and holds them until it is killed.
func holdIdle(count, upstream string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	conns := make([]net.Conn, 0, n)
	b := make([]byte, 4096)
	for range n {
		c, err := net.Dial("tcp", upstream) //nolint:noctx // loopback, at once
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(conns)+1, err)
		}
		conns = append(conns, c)
		if _, err := io.WriteString(c, "GET /0 HTTP/1.1\r\nHost: a\r\ntraceparent: "+(&keys{}).traceparent(ordinary)+"\r\n\r\n"); err != nil {
			return err
		}
		if _, err := c.Read(b); err != nil {
			return fmt.Errorf("connection %d: %w", len(conns), err)
		}
	}
	if _, err := fmt.Println("ready"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the bench lets go
	for _, c := range conns {
		err = errors.Join(err, c.Close())
	}
	return err
}
