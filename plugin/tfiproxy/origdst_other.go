//go:build !linux

package tfiproxy

import (
	"errors"
	"net"
)

// originalDestination needs netfilter.
func originalDestination(*net.TCPConn) (string, error) {
	return "", errors.New("redirected connections are served on Linux only")
}
