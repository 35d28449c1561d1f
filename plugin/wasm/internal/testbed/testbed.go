package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Build builds the filter into dir and returns its path.
func Build(ctx context.Context, dir string, tags string) (string, error) {
	out, err := filepath.Abs(filepath.Join(dir, "sequencefi"+tags+".wasm"))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-ldflags", "-s -w", "-tags", tags, "-o", out,
		"github.com/sequencefi/sequencefi/plugin/wasm/cmd/plugin")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the filter: %w\n%s", err, b)
	}
	return out, nil
}

// Options of a [Bed].
type Options struct {
	Form Form
	// Module is the built filter; not for Bare.
	Module string
	// Settings are the filter's VM configuration.
	Settings string
	// Policy is what Static has.
	Policy *tfiv1.Policy
	// Envoy is the binary; empty: the default version's.
	Envoy string
	// Workers; 0 means 1.
	Workers int
	// BufferBytes is the limit of the connections' buffers and, at least 64 KiB, of
	// HTTP/2 windows; 0: Envoy's.
	BufferBytes int
	// StreamIdle is how long nothing may happen in a stream; 0: Envoy's five minutes.
	StreamIdle time.Duration
}

// Bed is a sidecar with its surroundings.
type Bed struct {
	*behaviour.Endpoints
	Process *envoy.Process

	options Options
	plane   *plane
}

var _ behaviour.Sidecar = (*Bed)(nil)

// Start starts a bed.
func Start(ctx context.Context, o Options) (*Bed, error) {
	const most = 5 // in a row, of a thing that is rare
	for n := 1; ; n++ {
		b, err := start(ctx, o)
		if err == nil || n == most || !strings.Contains(err.Error(), "Address already in use") {
			return b, err
		}
		// Somebody's connection has taken a port between our look and Envoy's.
	}
}

func start(ctx context.Context, o Options) (_ *Bed, err error) {
	b := &Bed{options: o}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if b.Endpoints, err = behaviour.NewEndpoints(); err != nil {
		return nil, err
	}
	if b.plane, err = newPlane(); err != nil {
		return nil, err
	}
	a := addresses{callee: b.Callee(), collector: b.Collector(), xds: b.plane.addr}
	for _, addr := range []*string{&a.admin, &a.inbound, &a.outbound} {
		if *addr, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	b.Inbound, b.Outbound = a.inbound, a.outbound
	config, err := bootstrap(a, o)
	if err != nil {
		return nil, err
	}
	b.Process, err = envoy.Start(ctx, envoy.Options{
		Path: o.Envoy, Bootstrap: config, Admin: a.admin, Concurrency: o.Workers,
		Args: []string{"--component-log-level", "wasm:warning"},
	})
	return b, err
}

// Close ends everything.
func (b *Bed) Close() {
	if b.Process != nil {
		b.Process.Stop()
	}
	if b.plane != nil {
		b.plane.close()
	}
	if b.Endpoints != nil {
		_ = b.Endpoints.Close() // loopback
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// pushTimeout bounds one push; the first one compiles the module, which takes 5 s of CPU
// and much longer where many share it.
const pushTimeout = 3 * time.Minute

// ErrStatic says that a bed takes no pushes.
var ErrStatic = errors.New("the filter stands in the bootstrap")

// Apply pushes a policy and waits until it is in force.
func (b *Bed) Apply(ctx context.Context, p *tfiv1.Policy) error {
	n, err := b.Push(p)
	if err != nil {
		return err
	}
	return b.Settle(ctx, n)
}

// Push pushes a policy; nil takes the filter away. It returns the push's number.
func (b *Bed) Push(p *tfiv1.Policy) (int, error) {
	if b.options.Form == Static || b.options.Form == Bare {
		return 0, ErrStatic
	}
	if p == nil {
		return b.plane.push(nil)
	}
	wire, err := proto.Marshal(p)
	if err != nil {
		return 0, err
	}
	return b.push(p, wire)
}

// PushRaw pushes bytes in a policy's place.
func (b *Bed) PushRaw(policy []byte) (int, error) {
	return b.push(&tfiv1.Policy{}, policy)
}

func (b *Bed) push(p *tfiv1.Policy, wire []byte) (int, error) {
	r, err := b.options.gateOf(p, wire)
	if err != nil {
		return 0, err
	}
	return b.plane.push(r)
}

// Settle waits until a push is in force. Errors: ErrNACK.
func (b *Bed) Settle(ctx context.Context, push int) error {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	return b.plane.settle(ctx, push)
}
