package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// ficPrefix begins the names of SequenceFI's own headers.
const ficPrefix = "x-fic-"

// tap stands between an application and its sidecar, passes every byte on, and
// looks for SequenceFI's headers: what it finds, the application has seen.
type tap struct {
	name     string
	target   string
	protocol string
	listener net.Listener
	// oneByOne: a connection is passed on when the one before it has ended.
	oneByOne bool

	mu        sync.Mutex
	heads     int            // of requests and answers
	sightings map[string]int // header name to how often
	conns     map[net.Conn]struct{}
	done      sync.WaitGroup
}

// startTap listens at a free port for connections to target.
func startTap(ctx context.Context, name, target, protocol string) (*tap, error) {
	t, err := newTap(ctx, name, target, protocol)
	if err == nil {
		t.done.Go(t.accept)
	}
	return t, err
}

// newTap is one that does not accept yet.
func newTap(ctx context.Context, name, target, protocol string) (*tap, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &tap{
		name: name, target: target, protocol: protocol, listener: l,
		sightings: map[string]int{}, conns: map[net.Conn]struct{}{},
	}, nil
}

func (t *tap) addr() string { return t.listener.Addr().String() }

func (t *tap) accept() {
	for {
		near, err := t.listener.Accept()
		if err != nil {
			return // closed
		}
		if t.oneByOne {
			t.pass(near) // the kernel keeps the others in order
			continue
		}
		t.done.Go(func() { t.pass(near) })
	}
}

func (t *tap) pass(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", t.target) //nolint:noctx // loopback; ends with the listener's own
	if err != nil {
		return
	}
	defer far.Close()
	if !t.keep(near, far) {
		return
	}
	defer t.forget(near, far)
	var both sync.WaitGroup
	both.Go(func() { t.copy(far, near, true) })
	both.Go(func() { t.copy(near, far, false) })
	both.Wait()
}

// copy passes on what src sends, and lets a watcher read it too.
func (t *tap) copy(dst, src net.Conn, toServer bool) {
	var watch io.WriteCloser
	if t.protocol == topology.ProtocolHTTP {
		watch = &http1Watcher{tap: t}
	} else {
		watch = t.http2Watcher(toServer)
	}
	_, _ = io.Copy(io.MultiWriter(dst, watch), src) // either end has gone
	_ = watch.Close()
	if c, ok := dst.(*net.TCPConn); ok {
		_ = c.CloseWrite() // it has gone
	}
}

func (t *tap) keep(conns ...net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		return false
	}
	for _, c := range conns {
		t.conns[c] = struct{}{}
	}
	return true
}

func (t *tap) forget(conns ...net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range conns {
		delete(t.conns, c)
	}
}

func (t *tap) saw(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sightings[name]++
}

func (t *tap) head() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heads++
}

func (t *tap) close() {
	_ = t.listener.Close()
	t.mu.Lock()
	for c := range t.conns {
		_ = c.Close()
	}
	t.conns = nil
	t.mu.Unlock()
	t.done.Wait()
}

// http1Watcher looks at the lines of an HTTP/1 stream. A line of a body could be
// taken for a header: HotROD sends none that looks like ours.
type http1Watcher struct {
	tap  *tap
	line []byte // what came since the last line feed, its beginning only
}

// lineKept is enough of a line to tell what it is, behind a body of HotROD's.
const lineKept = 1024

func (w *http1Watcher) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		w.line = append(w.line, part[:min(len(part), lineKept-min(lineKept, len(w.line)))]...)
		if ended {
			w.look()
			w.line = w.line[:0]
		}
		rest = after
	}
	return len(p), nil
}

func (w *http1Watcher) look() {
	line := strings.ToLower(strings.TrimSpace(string(w.line)))
	switch name, _, ok := strings.Cut(line, ":"); {
	case ok && strings.HasPrefix(name, ficPrefix):
		w.tap.saw(name)
	case strings.Contains(line, "http/1.1 "), strings.HasSuffix(line, " http/1.1"):
		// The first may follow a body that has no line feed at its end.
		w.tap.head()
	}
}

func (w *http1Watcher) Close() error { return nil }

// http2Watcher decodes one direction of an HTTP/2 connection.
func (t *tap) http2Watcher(toServer bool) io.WriteCloser {
	r, w := io.Pipe()
	t.done.Go(func() {
		err := t.frames(r, toServer)
		// What cannot be read must still be passed on.
		_, _ = io.Copy(io.Discard, r)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.saw("unreadable HTTP/2: " + err.Error())
		}
	})
	return w
}

// frames reads until the connection ends, which is an error as any other.
func (t *tap) frames(r io.Reader, toServer bool) error {
	if toServer {
		if _, err := io.CopyN(io.Discard, r, int64(len(http2.ClientPreface))); err != nil {
			return err
		}
	}
	f := http2.NewFramer(io.Discard, r)
	f.SetMaxReadFrameSize(1 << 24)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	// The peer's SETTINGS may allow more; nothing here depends on the limit.
	f.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(1 << 20)
	f.MaxHeaderListSize = 1 << 20
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		headers, ok := frame.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		t.head()
		for _, field := range headers.Fields {
			if strings.HasPrefix(field.Name, ficPrefix) {
				t.saw(field.Name)
			}
		}
	}
}

// Sighting is one of SequenceFI's headers that an application has seen.
type Sighting struct {
	// Where is "inbound SERVICE", "outbound SERVICE to CALLEE", or "entrance", which is
	// where clients are.
	Where string
	// Header is the header's name.
	Header string
	Times  int
}

func (s Sighting) String() string { return fmt.Sprintf("%s: %s ×%d", s.Where, s.Header, s.Times) }

// Sightings lists what the applications, and the clients at an entrance, have seen of SequenceFI so far, sorted by
// place; Options.Tap must be set. An answer that a fault made has x-fic-injected
// at the caller's outbound side, as it should.
func (e *Env) Sightings() []Sighting {
	var all []Sighting
	for _, t := range e.taps {
		t.mu.Lock()
		for _, name := range slices.Sorted(maps.Keys(t.sightings)) {
			all = append(all, Sighting{Where: t.name, Header: name, Times: t.sightings[name]})
		}
		t.mu.Unlock()
	}
	slices.SortStableFunc(all, func(a, b Sighting) int { return strings.Compare(a.Where, b.Where) })
	return all
}

// Heads is the number of requests and answers that passed the taps, by place.
func (e *Env) Heads() map[string]int {
	heads := map[string]int{}
	for _, t := range e.taps {
		t.mu.Lock()
		heads[t.name] = t.heads
		t.mu.Unlock()
	}
	return heads
}

// startTaps puts a tap on both sides of each application: where its sidecar
// reaches it, and where it reaches its sidecar. It returns how the applications
// are to be started, and changes the topology to how the sidecars are.
func (e *Env) startTaps(ctx context.Context) (*topology.Topology, error) {
	apps := &topology.Topology{Services: slices.Clone(e.Topology.Services)}
	add := func(name, target, protocol string) (string, error) {
		t, err := startTap(ctx, name, target, protocol)
		if err != nil {
			return "", err
		}
		e.taps = append(e.taps, t)
		return t.addr(), nil
	}
	for i := range apps.Services {
		s := &apps.Services[i]
		tapped, err := add("inbound "+s.Name, s.App, s.Protocol)
		if err != nil {
			return nil, err
		}
		e.Topology.Services[i].App = tapped
		s.Calls = slices.Clone(s.Calls)
		for j, c := range s.Calls {
			if s.Calls[j].Listen, err = add("outbound "+s.Name+" to "+c.Service, c.Listen, e.Topology.CalleeProtocol(c)); err != nil {
				return nil, err
			}
		}
	}
	return apps, nil
}
