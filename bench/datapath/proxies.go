package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/deploy/process"
)

// The names in tables.
const (
	direct       = "direct"
	pumpName     = "pump"
	tfiproxyName = "tfiproxy"
	nginxName    = "nginx"
	haproxyName  = "haproxy"
	envoyName    = "envoy"
	pluginName   = "envoy+plugin"
	stdlibName   = "reverseproxy"
	fasthttpName = "fasthttp"
)

type starter struct {
	name  string
	start func(*bed, context.Context) (*proxy, error)
}

var starters = []starter{
	{pumpName, (*bed).startPump},
	{tfiproxyName, (*bed).startTFIProxy},
	{nginxName, (*bed).startNginx},
	{haproxyName, (*bed).startHAProxy},
	{envoyName, (*bed).startBareEnvoy},
	{pluginName, (*bed).startPluginEnvoy},
	{stdlibName, (*bed).startReverseProxy},
	{fasthttpName, (*bed).startFastHTTP},
}

// reference reports whether it only tells what Go's libraries would cost: no target
// looks at it, so it is measured less.
func (p *proxy) reference() bool { return p.name == stdlibName || p.name == fasthttpName }

// shows reports whether a proxy's column has a workload.
func (p *proxy) shows(w workload) bool {
	return !p.reference() || w.bytes == 0 || w.connections == 8
}

// startProxies starts all proxies that this machine has, or those of only; tell is
// told which are left out, and why. Without TFIProxy there is nothing to compare.
func (b *bed) startProxies(ctx context.Context, only []string, tell func(error)) error {
	for _, s := range starters {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		b.say("starting %s", s.name)
		p, err := s.start(b, ctx)
		if errors.Is(err, process.ErrEnded) {
			p, err = s.start(b, ctx) // somebody else may have taken a port
		}
		switch {
		case err != nil && (ctx.Err() != nil || s.name == tfiproxyName):
			return fmt.Errorf("%s: %w", s.name, err)
		case err != nil:
			tell(fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		b.proxy = append(b.proxy, p)
	}
	return nil
}

// newProxy with an address for each protocol.
func newProxy(ctx context.Context, name string) (*proxy, error) {
	a, err := process.FreeAddrs(ctx, 2)
	if err != nil {
		return nil, err
	}
	return &proxy{name: name, http: a[0], grpc: a[1]}, nil
}

func (b *bed) startNginx(ctx context.Context) (*proxy, error) {
	path, err := find("nginx", "nginx-light")
	if err != nil {
		return nil, err
	}
	p, err := newProxy(ctx, nginxName)
	if err != nil {
		return nil, err
	}
	p.version = firstLine(ctx, path, "-v")
	// Answers are passed on without a stay on the disk; connections are kept on both
	// sides. With its own small buffers one of 64 KiB costs it twice as much.
	file, err := b.write("nginx.conf", fmt.Sprintf(`daemon off; master_process off; pid %[1]s/nginx.pid; error_log %[1]s/nginx.log crit;
events { worker_connections %[6]d; }
http {
  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;
  client_body_temp_path %[1]s/nginx-temp; proxy_temp_path %[1]s/nginx-temp; fastcgi_temp_path %[1]s/nginx-temp;
  uwsgi_temp_path %[1]s/nginx-temp; scgi_temp_path %[1]s/nginx-temp;
  client_max_body_size 0; proxy_request_buffering off;
  proxy_buffer_size 16k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;
  upstream http1 { server %[2]s; keepalive 1024; keepalive_requests 1000000000; }
  upstream grpc { server %[3]s; keepalive 1024; keepalive_requests 1000000000; }
  server { listen %[4]s; location / { proxy_pass http://http1; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_max_temp_file_size 0; } }
  server { listen %[5]s http2; location / { grpc_pass grpc://grpc; } }
}
`, b.work, b.http, b.grpc, p.http, p.grpc, b.idle+2500))
	if err != nil {
		return nil, err
	}
	return b.startProxy(ctx, p, path, "-c", file, "-e", filepath.Join(b.work, "nginx.log"))
}

func (b *bed) startHAProxy(ctx context.Context) (*proxy, error) {
	path, err := find("haproxy", "haproxy")
	if err != nil {
		return nil, err
	}
	p, err := newProxy(ctx, haproxyName)
	if err != nil {
		return nil, err
	}
	p.version = firstLine(ctx, path, "-v")
	file, err := b.write("haproxy.cfg", fmt.Sprintf(`global
  nbthread 1
  maxconn %d
  no strict-limits
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
`, b.idle+500, p.http, p.grpc, b.http, b.grpc))
	if err != nil {
		return nil, err
	}
	return b.startProxy(ctx, p, path, "-db", "-f", file)
}

// startPump starts the byte pump on both ports: it does not know what it passes.
func (b *bed) startPump(ctx context.Context) (*proxy, error) {
	program, err := b.build(ctx, pumpName, ".", "./bench/datapath/pump")
	if err != nil {
		return nil, err
	}
	p, err := newProxy(ctx, pumpName)
	if err != nil {
		return nil, err
	}
	return b.startProxy(ctx, p, program, "-listen", p.http+","+p.grpc, "-upstream", b.http+","+b.grpc)
}

func (b *bed) startReverseProxy(ctx context.Context) (*proxy, error) {
	program, err := b.build(ctx, stdlibName, ".", "./bench/datapath/reverseproxy")
	if err != nil {
		return nil, err
	}
	p, err := newProxy(ctx, stdlibName)
	if err != nil {
		return nil, err
	}
	p.grpc = ""
	return b.startProxy(ctx, p, program, "-listen", p.http, "-upstream", b.http)
}

func (b *bed) startFastHTTP(ctx context.Context) (*proxy, error) {
	program, err := b.build(ctx, "fasthttp", filepath.Join("bench", "datapath", "tools"), "./fasthttp")
	if err != nil {
		// Its module may be out of reach; nothing else depends on it.
		return nil, fmt.Errorf("%w: %s", errMissing, strings.TrimSpace(err.Error()))
	}
	p, err := newProxy(ctx, fasthttpName)
	if err != nil {
		return nil, err
	}
	p.grpc = ""
	return b.startProxy(ctx, p, program, "-listen", p.http, "-upstream", b.http)
}
