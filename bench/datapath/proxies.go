package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// proxy is one of those that are compared.
type proxy struct {
	name       string
	http, grpc string // addresses; empty: it does not speak that
	pid        int    // 0: there is none in between
	stop       func()
}

// bed is the machine room: what all proxies stand in front of.
type bed struct {
	dir        string
	http, grpc string // the callees
	collector  string // of spans
	program    string // this one
	tfiproxy   string
	pinned     []string // taskset and its arguments; empty: not pinned
	procs      []*exec.Cmd
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		return "127.0.0.1:0"
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a program until the bed is torn down.
func (b *bed) start(pinned bool, name string, args ...string) (*exec.Cmd, error) {
	if pinned && len(b.pinned) > 0 {
		args = append(append(b.pinned[1:len(b.pinned):len(b.pinned)], name), args...)
		name = b.pinned[0]
	}
	log, err := os.OpenFile(filepath.Join(b.dir, "log.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(name, args...) //nolint:noctx // stop ends it
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.procs = append(b.procs, cmd)
	return cmd, nil
}

func (b *bed) stop() {
	for _, cmd := range b.procs {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	}
}

// await waits until an address answers.
func await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", address, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *bed) write(name, text string) (string, error) {
	file := filepath.Join(b.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// errMissing says that a program is not on this machine; it is left out.
var errMissing = errors.New("not found")

func find(name, debian string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s %w: apt-get install %s", name, errMissing, debian)
}

// trialKey is the key of a clean recording that is always on in tfiproxy.
var trialKey = [7]byte{1, 2, 3, 4, 5, 6, 7}

func (b *bed) startTFIProxy(name string, policy bool) (*proxy, error) {
	p := &proxy{name: name, http: freeAddress(), grpc: freeAddress()}
	source := ""
	if policy {
		raw, err := proto.Marshal(&tfiv1.Policy{
			Service: "shop", Version: "1", Reporting: &tfiv1.Reporting{Cluster: "collector"}, Peers: []*tfiv1.Peer{{Service: "cart", Clusters: []string{"cart"}}},
			Activations: []*tfiv1.Activation{{Key: trialKey[:], Remaining: durationpb.New(time.Hour), Services: []string{"shop", "cart"}}},
		})
		if err != nil {
			return nil, err
		}
		file, err := b.write("policy.pb", string(raw))
		if err != nil {
			return nil, err
		}
		source = fmt.Sprintf(`, "policy": {"file": %q}`, file)
	}
	file, err := b.write(name+".json", fmt.Sprintf(`{"service": "shop", "workers": 1, "clusters": {"collector": %q}, "outbound": [
		{"listen": %q, "upstream": %q, "cluster": "cart"},
		{"listen": %q, "upstream": %q, "cluster": "cart"}]%s}`, b.collector, p.http, b.http, p.grpc, b.grpc, source))
	if err != nil {
		return nil, err
	}
	cmd, err := b.start(true, b.tfiproxy, file)
	if err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (b *bed) startNginx() (*proxy, error) {
	path, err := find("nginx", "nginx-light")
	if err != nil {
		return nil, err
	}
	p := &proxy{name: "nginx", http: freeAddress(), grpc: freeAddress()}
	file, err := b.write("nginx.conf", fmt.Sprintf(`daemon off; master_process off; pid %[1]s/nginx.pid; error_log %[1]s/nginx.log crit;
events { worker_connections 19500; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  upstream http1 { server %[2]s; keepalive 1024; keepalive_requests 1000000000; }
  upstream grpc { server %[3]s; keepalive 1024; keepalive_requests 1000000000; }
  server { listen %[4]s; location / { proxy_pass http://http1; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_max_temp_file_size 0; } }
  server { listen %[5]s http2; location / { grpc_pass grpc://grpc; } }
}
`, b.dir, b.http, b.grpc, p.http, p.grpc))
	if err != nil {
		return nil, err
	}
	cmd, err := b.start(true, path, "-c", file, "-e", filepath.Join(b.dir, "nginx.log"))
	if err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (b *bed) startHAProxy() (*proxy, error) {
	path, err := find("haproxy", "haproxy")
	if err != nil {
		return nil, err
	}
	p := &proxy{name: "haproxy", http: freeAddress(), grpc: freeAddress()}
	file, err := b.write("haproxy.cfg", fmt.Sprintf(`global
  nbthread 1
  maxconn 9500
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  http-reuse always
frontend h1
  bind %s
  default_backend h1
frontend h2
  bind %s proto h2
  default_backend h2
backend h1
  server a %s
backend h2
  server a %s proto h2
`, p.http, p.grpc, b.http, b.grpc))
	if err != nil {
		return nil, err
	}
	cmd, err := b.start(true, path, "-db", "-f", file)
	if err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (b *bed) startRole(role, upstream string) (*proxy, error) {
	p := &proxy{name: role, http: freeAddress()}
	cmd, err := b.start(true, b.program, "-role", role, "-listen", p.http, "-upstream", upstream)
	if err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (b *bed) startEnvoy(ctx context.Context) (*proxy, error) {
	p := &proxy{name: "envoy", http: freeAddress(), grpc: freeAddress()}
	admin := freeAddress()
	port := func(address string) string {
		_, port, _ := net.SplitHostPort(address)
		return port
	}
	listener := func(address, cluster, codec string) string {
		return fmt.Sprintf(`{"address":{"socket_address":{"address":"127.0.0.1","port_value":%s}},"filter_chains":[{"filters":[{
"name":"hcm","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
"stat_prefix":"in","codec_type":%q,"route_config":{"virtual_hosts":[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":%q,"timeout":"0s"}}]}]},
"http_filters":[{"name":"router","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}`,
			port(address), codec, cluster)
	}
	cluster := func(name, address, more string) string {
		return fmt.Sprintf(`{"name":%q,"type":"STATIC","connect_timeout":"5s","load_assignment":{"cluster_name":%q,"endpoints":[{"lb_endpoints":[
{"endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":%s}}}}]}]}%s}`, name, name, port(address), more)
	}
	http2 := `,"typed_extension_protocol_options":{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":{
"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions","explicit_http_config":{"http2_protocol_options":{}}}}`
	bootstrap := fmt.Sprintf(`{"admin":{"address":{"socket_address":{"address":"127.0.0.1","port_value":%s}}},"static_resources":{"listeners":[%s,%s],"clusters":[%s,%s]}}`,
		port(admin), listener(p.http, "h1", "HTTP1"), listener(p.grpc, "h2", "HTTP2"), cluster("h1", b.http, ""), cluster("h2", b.grpc, http2))
	e, err := envoy.Start(ctx, envoy.Options{Bootstrap: []byte(bootstrap), Admin: admin, Dir: b.dir})
	if err != nil {
		if errors.Is(err, envoy.ErrNotFound) {
			return nil, fmt.Errorf("envoy %w: make envoy", errMissing)
		}
		return nil, err
	}
	p.pid, p.stop = e.Pid(), e.Stop
	if len(b.pinned) > 0 {
		args := append(append([]string{}, b.pinned[1:]...), "-a", "-p", fmt.Sprint(p.pid))
		// `taskset -a -c 1 -p PID`: all threads that there are already.
		out, err := exec.CommandContext(ctx, b.pinned[0], reorder(args)...).CombinedOutput()
		if err != nil {
			e.Stop()
			return nil, fmt.Errorf("pin envoy: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return p, nil
}

// reorder turns `-c CPU -a -p PID` into what taskset wants: `-a -c -p CPU PID`.
func reorder(args []string) []string {
	return []string{"-a", "-c", "-p", args[1], args[len(args)-1]}
}
