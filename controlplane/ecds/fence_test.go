package ecds_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// subprocessEnv makes the test binary a plane that can be killed.
const subprocessEnv = "SEQUENCEFI_ECDS_TEST_PLANE"

// heartbeatSeen is what that plane says once a heartbeat has been acknowledged.
const heartbeatSeen = "heartbeat"

// order is what the plane in the other process is told.
type order struct {
	Filename string        `json:"filename"`
	TTL      time.Duration `json:"ttl"`
	Service  string        `json:"service"`
}

// planeProcess reads an order, serves, and prints its address, the version that a
// sidecar has acknowledged, and a line once it has acknowledged a heartbeat of it,
// which is what carries the short TTL.
func planeProcess(in io.Reader, out io.Writer) int {
	err := func() error {
		var o order
		if err := json.NewDecoder(in).Decode(&o); err != nil {
			return err
		}
		s, err := ecds.New(ecds.Config{Module: gate.Module{Filename: o.Filename}, TTL: o.TTL, FirstTTL: 2 * time.Minute, ConnectGrace: time.Minute})
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		messages := make(chan struct{}, 100)
		g := grpc.NewServer(append(ecds.ServerOptions(), grpc.StreamInterceptor(
			func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				return handler(srv, heardStream{stream, messages})
			}))...)
		s.Register(g)
		fmt.Fprintln(out, l.Addr())
		go func() {
			ctx := context.Background()
			version, err := s.Apply(ctx, map[string]*tfiv1.Policy{o.Service: policyOf(o.Service, time.Hour)})
			if err == nil {
				err = s.Wait(ctx, version, []string{o.Service})
			}
			fmt.Fprintln(out, version, err)
			for len(messages) > 0 {
				<-messages
			}
			select {
			case <-messages:
				fmt.Fprintln(out, heartbeatSeen)
			case <-time.After(time.Minute):
				fmt.Fprintln(out, "no heartbeat")
			}
		}()
		return g.Serve(l)
	}()
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// heardStream tells of each message that a sidecar sends.
type heardStream struct {
	grpc.ServerStream
	messages chan<- struct{}
}

func (s heardStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		select {
		case s.messages <- struct{}{}:
		default:
		}
	}
	return err
}

// A plane that is killed can take nothing away: the sidecar does, by itself.
func TestEnvoyDropsThePluginWhenThePlaneIsKilled(t *testing.T) {
	const ttl = 4 * time.Second
	// An Envoy without processor time is late, but far from the two minutes that the
	// first TTL would give it, or the hour of the activation.
	const late = 30 * time.Second
	for _, apiType := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), subprocessEnv+"=1")
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill() // it has been already
				_ = cmd.Wait()
			}()
			if err := json.NewEncoder(stdin).Encode(order{Filename: pluginPath(t), TTL: ttl, Service: "cart"}); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			if !lines.Scan() {
				t.Fatal("no address")
			}
			e := startSidecar(t, sidecarOptions{name: "cart", xds: lines.Text(), apiType: apiType})
			if !lines.Scan() {
				t.Fatal("no version")
			}
			var version, problem string
			if _, err := fmt.Sscan(lines.Text(), &version, &problem); err != nil || problem != "<nil>" {
				t.Fatalf("plane says %q", lines.Text())
			}
			if got := e.trial(t); got != version {
				t.Fatalf("policy in force %q, acknowledged %q", got, version)
			}
			if !lines.Scan() || lines.Text() != heartbeatSeen {
				t.Fatalf("plane says %q", lines.Text())
			}
			// One that was starved for a TTL has dropped it, and is given it again.
			eventually(t, late, "policy in force while the plane lives", func() bool { return e.trial(t) == version })
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			took := eventually(t, ttl+late, "plugin dropped", func() bool { return e.trial(t) == "" })
			eventually(t, late, "no VM left", func() bool { return e.vms(t) == 0 })
			t.Logf("dropped %v after SIGKILL", took)
			if a := e.get(t, "/", "traceparent", trialParent); a.status != 200 || a.body != "app" {
				t.Errorf("traffic: %d %q", a.status, a.body)
			}
		})
	}
}
