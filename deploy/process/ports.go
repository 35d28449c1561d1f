package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Free ports are looked for below the range from which Linux takes the ports of
// outgoing connections (32768 by default), so that none is taken away between
// its choice and its use.
const (
	lowestPort  = 20000
	highestPort = 32000
)

var errNoPort = errors.New("no free port found")

// FreeAddrs returns n different loopback addresses at which nobody listens.
func FreeAddrs(ctx context.Context, n int) ([]string, error) {
	var lc net.ListenConfig
	addrs := make([]string, 0, n)
	for range 100 * n {
		if len(addrs) == n {
			return addrs, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort) //nolint:gosec // no secret
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close() // all are held until the last is found
		addrs = append(addrs, l.Addr().String())
	}
	return nil, fmt.Errorf("%w: %d wanted between %d and %d", errNoPort, n, lowestPort, highestPort)
}
