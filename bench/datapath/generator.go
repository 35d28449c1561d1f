package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// loadResult is what the generator prints.
type loadResult struct {
	Requests int     `json:"requests"`
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	P999     float64 `json:"p999_us"`
	Max      float64 `json:"max_us"`
}

// peer speaks a protocol on one connection, as a client. It has slots, each for one
// request at a time.
type peer interface {
	// greet appends what a connection begins with.
	greet(b []byte) []byte
	// ask appends a request; where a slot's stream is open still, its next message.
	ask(b []byte, slot int) []byte
	// finish appends the end of a slot's open stream, if it has one.
	finish(b []byte, slot int) []byte
	// take reads what has come, calls done for each slot that has been answered and
	// appends to reply what the protocol wants said; it returns how many bytes it used.
	take(b []byte, reply *[]byte, done func(slot int)) (int, error)
}

var (
	errStuck = errors.New("a peer does not read")
	errGone  = errors.New("the peer has closed a connection")
	errLate  = errors.New("requests were not answered in time")
)

// patience is how long answers may take once the last request is out.
const patience = 10 * time.Second

// generator sends requests and times their answers, in one thread around epoll.
// The pace is kept by a timerfd: Go's own timers are as coarse as a millisecond in an
// idle process, more than what is to be measured.
//
// A latency counts from the moment at which its request was due, whether or not a
// connection was free then. So an answer that is late makes those behind it late as
// well, as it would for users who do not wait for each other.
type generator struct {
	load         *load
	epoll, timer int
	conns        []*clientConn
	free         ring[slot]
	late         ring[time.Duration] // due, but no slot was free
	begun        time.Time
	sent, total  int
	waiting      int // requests under way
	latencies    []time.Duration
}

type clientConn struct {
	fd    int
	peer  peer
	rest  []byte          // of a message that is not yet whole
	out   []byte          // to be written
	due   []time.Duration // of each slot's request
	index int
}

type slot struct {
	conn *clientConn
	n    int
}

// generate reads a load from standard input and prints its result: the role of a
// process of its own.
func generate() error {
	var l load
	if err := json.NewDecoder(os.Stdin).Decode(&l); err != nil {
		return err
	}
	r, err := runLoad(&l)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func runLoad(l *load) (r *loadResult, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := &generator{load: l, epoll: -1, timer: -1}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.open(); err != nil {
		return nil, err
	}
	if err := g.run(); err != nil {
		return nil, err
	}
	return g.result(), nil
}

func (g *generator) open() (err error) {
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if g.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return err
	}
	if err := g.watch(g.timer, -1); err != nil {
		return err
	}
	address, err := netip.ParseAddrPort(g.load.Address)
	if err != nil {
		return err
	}
	slots := max(1, g.load.Streams)
	for i := range g.load.Connections {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		c := &clientConn{fd: fd, due: make([]time.Duration, slots), index: i}
		g.conns = append(g.conns, c)
		if g.load.Shape.grpc() {
			c.peer = newClientHTTP2(g.load, slots)
		} else {
			c.peer = newClientHTTP1(g.load)
		}
		if err := errors.Join(
			unix.Connect(fd, &unix.SockaddrInet4{Addr: address.Addr().As4(), Port: int(address.Port())}),
			unix.SetNonblock(fd, true),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
			g.watch(fd, i),
		); err != nil {
			return fmt.Errorf("connect to %v: %w", address, err)
		}
		c.out = c.peer.greet(nil)
		if err := c.flush(); err != nil {
			return err
		}
	}
	// Connections take turns, and each its slots.
	for n := range slots {
		for _, c := range g.conns {
			g.free.push(slot{c, n})
		}
	}
	return nil
}

// watch waits for a descriptor to be readable; what is its connection, or -1.
func (g *generator) watch(fd, what int) error {
	return unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(what)})
}

func (g *generator) close() (err error) {
	for _, c := range g.conns {
		err = errors.Join(err, unix.Close(c.fd))
	}
	for _, fd := range []int{g.epoll, g.timer} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

func (g *generator) run() error {
	g.total = int(g.load.Duration.Seconds() * float64(g.load.Rate))
	room := g.total
	if g.load.Rate == 0 {
		room = 1 << 20
	}
	g.latencies = make([]time.Duration, 0, room)
	buffer := make([]byte, 256<<10)
	events := make([]unix.EpollEvent, 128)
	g.begun = time.Now()
	if err := g.step(); err != nil {
		return err
	}
	for !g.over() {
		n, err := unix.EpollWait(g.epoll, events, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Since(g.begun) > g.load.Duration+patience {
			return fmt.Errorf("%w: %d of %d", errLate, g.waiting+g.late.len(), g.sent+g.late.len())
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd < 0 {
				_, _ = unix.Read(g.timer, buffer) // only that it is told again
				continue
			}
			if err := g.read(g.conns[e.Fd], buffer); err != nil {
				return err
			}
		}
		if err := g.step(); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether all that was to be sent has been sent and answered.
func (g *generator) over() bool {
	if g.load.Rate > 0 {
		return g.sent == g.total && g.waiting == 0
	}
	return g.waiting == 0 && time.Since(g.begun) >= g.load.Duration
}

// step sends what is due and sets the timer to what is next.
func (g *generator) step() error {
	if g.load.Rate == 0 {
		for time.Since(g.begun) < g.load.Duration && g.free.len() > 0 {
			g.send(g.free.pop(), time.Since(g.begun))
		}
		return g.flush()
	}
	for {
		due := time.Duration(g.sent+g.late.len()) * time.Second / time.Duration(g.load.Rate)
		if g.sent+g.late.len() == g.total || due > time.Since(g.begun) {
			break
		}
		g.late.push(due)
		g.sendLate()
	}
	g.sendLate()
	if err := g.flush(); err != nil {
		return err
	}
	if n := g.sent + g.late.len(); n < g.total {
		due := time.Duration(n) * time.Second / time.Duration(g.load.Rate)
		wait := max(due-time.Since(g.begun), 1)
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}
		return unix.TimerfdSettime(g.timer, 0, &spec, nil)
	}
	return nil
}

func (g *generator) sendLate() {
	for g.late.len() > 0 && g.free.len() > 0 {
		g.send(g.free.pop(), g.late.pop())
	}
}

func (g *generator) send(s slot, due time.Duration) {
	s.conn.out = s.conn.peer.ask(s.conn.out, s.n)
	s.conn.due[s.n] = due
	g.sent++
	g.waiting++
}

func (g *generator) flush() error {
	for _, c := range g.conns {
		if err := c.flush(); err != nil {
			return err
		}
	}
	return nil
}

// flush writes all that is to be written. It is little at a time, so a socket that
// does not take it belongs to a peer that has stopped.
func (c *clientConn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	n, err := unix.Write(c.fd, c.out)
	if err == nil && n < len(c.out) || errors.Is(err, unix.EAGAIN) {
		return errStuck
	}
	c.out = c.out[:0]
	return err
}

// read takes what has come on a connection.
func (g *generator) read(c *clientConn, buffer []byte) error {
	n, err := unix.Read(c.fd, buffer)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return errGone
	}
	now := time.Since(g.begun)
	b := buffer[:n]
	if len(c.rest) > 0 {
		c.rest = append(c.rest, b...)
		b = c.rest
	}
	used, err := c.peer.take(b, &c.out, func(n int) {
		g.waiting--
		g.latencies = append(g.latencies, now-c.due[n])
		if g.load.Rate == 0 && now >= g.load.Duration {
			c.out = c.peer.finish(c.out, n)
		}
		g.free.push(slot{c, n})
	})
	if err != nil {
		return err
	}
	c.rest = append(c.rest[:0], b[used:]...)
	return nil
}

func (g *generator) result() *loadResult {
	r := &loadResult{Requests: len(g.latencies), Seconds: time.Since(g.begun).Seconds()}
	slices.Sort(g.latencies)
	r.P50, r.P99, r.P999, r.Max = micros(g.latencies, 0.5), micros(g.latencies, 0.99), micros(g.latencies, 0.999), micros(g.latencies, 1)
	return r
}

// micros is a quantile of what is sorted, by nearest rank.
func micros(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return float64(sorted[min(max(rank, 0), len(sorted)-1)]) / 1e3
}

// ring is a queue that allocates only to grow.
type ring[T any] struct {
	all         []T
	first, size int
}

func (r *ring[T]) len() int { return r.size }

func (r *ring[T]) push(v T) {
	if r.size == len(r.all) {
		grown := make([]T, max(64, 2*r.size))
		for i := range r.size {
			grown[i] = r.all[(r.first+i)%len(r.all)]
		}
		r.all, r.first = grown, 0
	}
	r.all[(r.first+r.size)%len(r.all)] = v
	r.size++
}

func (r *ring[T]) pop() T {
	v := r.all[r.first]
	r.first, r.size = (r.first+1)%len(r.all), r.size-1
	return v
}
