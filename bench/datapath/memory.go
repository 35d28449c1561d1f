package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// loadConnections are those under which memory is measured.
const loadConnections = 64

// heldSettles is how many times longer idle connections are left alone.
const heldSettles = 4

// The moments at which memory is measured.
const (
	whenIdle   = "idle"
	whenFew    = "after few"
	whenMany   = "after many"
	whenLoaded = "under load"
	whenHeld   = "connections held"
)

// memory is what a process holds at a moment.
type memory struct {
	Proxy    string `json:"proxy"`
	When     string `json:"when"`
	Requests int    `json:"requests,omitempty"`
	Held     int    `json:"connections_held,omitempty"`
	RSS      int64  `json:"rss_bytes"`
	PSS      int64  `json:"pss_bytes,omitempty"`
}

func readMemory(p *proxy, when string) (memory, error) {
	rss, pss, err := memoryOf(p.pid)
	return memory{Proxy: p.name, When: when, RSS: rss, PSS: pss}, err
}

// some sends a fixed number of requests over loadConnections.
func (b *bed) some(ctx context.Context, p *proxy, n int) error {
	out, err := b.tool(ctx, "h2load", "--h1", "-t1", "-n", strconv.Itoa(n), "-c", strconv.Itoa(loadConnections),
		"-H", "traceparent: "+b.keys.traceparent(ordinary), "http://"+p.http+"/0")
	if err != nil {
		return err
	}
	_, err = parseH2load(out, 0)
	return err
}

// memory measures a proxy after few requests, after many, and at its most
// meanwhile.
func (b *bed) memory(ctx context.Context, p *proxy, few, many int) (all []memory, err error) {
	if err := resetPeak(p.pid); err != nil {
		return nil, err
	}
	for _, x := range []struct {
		when  string
		total int
		more  int
	}{{whenFew, few, few}, {whenMany, many, many - few}} {
		if err := b.some(ctx, p, x.more); err != nil {
			return all, err
		}
		if err := rest(ctx, b.settle); err != nil {
			return all, err
		}
		m, err := readMemory(p, x.when)
		if err != nil {
			return all, err
		}
		m.Requests = x.total
		all = append(all, m)
	}
	peak, err := peakOf(p.pid)
	return append(all, memory{Proxy: p.name, When: whenLoaded, Requests: many, RSS: peak}), err
}

// held measures a proxy while clients hold idle connections that have had one
// request each.
func (b *bed) held(ctx context.Context, p *proxy, n int) (m memory, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append(slices.Clone(b.otherCPU), b.program, "-role", "idle", "-listen", strconv.Itoa(n), "-upstream", p.http)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var errs strings.Builder
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return m, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return m, err
	}
	if err := cmd.Start(); err != nil {
		return m, err
	}
	defer func() {
		_ = in.Close() // lets go of the connections
		if e := cmd.Wait(); err == nil && e != nil {
			err = fmt.Errorf("%w: %s", e, errs.String())
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "ready" {
		return m, errors.New("the connections were not made")
	}
	// Longer than after load: connections that turn out idle are made smaller bit by bit.
	if err := rest(ctx, heldSettles*b.settle); err != nil {
		return m, err
	}
	m, err = readMemory(p, whenHeld)
	m.Held = n
	return m, err
}

// rest waits: there is no event that says that a runtime has given its memory back.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
