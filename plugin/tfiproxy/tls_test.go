package tfiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// TestTLS passes bodies of many sizes, with trailers, through a sidecar that terminates
// TLS, one that originates it, and one that does both.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	pair := a.issue(t, "upstream", "prices")
	plain := httpServer(t, echoBody)
	secure := secureServer(t, &tls.Config{Certificates: []tls.Certificate{pair}}, echoBody)
	originating := func(upstream string) *Config {
		cfg := outboundTo(upstream)
		cfg.Listeners[0].UpstreamTLS = &ClientTLS{CA: a.file("ca.crt")}
		return cfg
	}
	both := a.terminating(t, secure)
	both.Listeners[0].UpstreamTLS = &ClientTLS{CA: a.file("ca.crt"), ServerName: "prices"}
	for _, c := range []struct {
		name   string
		config *Config
		client *tls.Config
		scheme string
	}{
		{"terminates", a.terminating(t, plain), a.client(), "https://"},
		{"originates", originating(secure), nil, "http://"},
		{"both", both, a.client(), "https://"},
		{"passes through", outboundTo(secure), a.client(), "https://"},
		{"does not encrypt twice", originating(secure), a.client(), "https://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startProxy(t, c.config)
			for _, http2 := range []bool{false, true} {
				client := protocolClient(t, http2, c.client.Clone())
				for _, n := range []int{0, 1, 100, 20_000, 3 << 20} {
					body := strings.Repeat("0123456789abcdef", n/16+1)[:n]
					got := post(t, client, c.scheme+p.Addr(0).String()+"/", body)
					if got.body != body || got.sum != fmt.Sprint(n) {
						t.Errorf("%d bytes back of %d, trailer %q", len(got.body), n, got.sum)
					}
					if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]; got.protocol != want {
						t.Errorf("the upstream saw %s, want %s", got.protocol, want)
					}
				}
			}
			seen := p.metrics.get(metricRequests) + p.metrics.get(metricRequestsHTTP2)
			unseen := p.metrics.get(metricUnseen)
			if through := c.client != nil && c.config.Listeners[0].TLS == nil; through != (unseen == 2) || through != (seen == 0) {
				t.Errorf("%d requests seen, %d connections unseen", seen, unseen)
			}
			if n := p.metrics.get(metricTLSErrors) + p.metrics.get(metricInternal); n != 0 {
				t.Errorf("%d errors", n)
			}
		})
	}
}

// TestTLSHalfClose says that either end may say goodbye before the other.
func TestTLSHalfClose(t *testing.T) {
	a := newAuthority(t)
	p := startProxy(t, a.terminating(t, rawServer(t, func(conn *net.TCPConn, _ int) {
		_, _ = io.ReadAll(conn) // to the client's end
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nlate")
	})))
	raw := dialProxy(t, p)
	conn := tls.Client(raw, &tls.Config{RootCAs: a.pool, ServerName: "shop"})
	say(t, conn, "GET / HTTP/1.0\r\n\r\n")
	if err := errors.Join(conn.CloseWrite(), raw.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil || !bytes.HasSuffix(b, []byte("late")) {
		t.Errorf("got %q, %v", b, err)
	}
}

// TestTLSHalfCloseUpstream says that an upstream which speaks TLS is told of a client's end
// as TLS tells it, by a goodbye. Without one it takes the request for cut off.
func TestTLSHalfCloseUpstream(t *testing.T) {
	a := newAuthority(t)
	pair := a.issue(t, "upstream", "localhost")
	for _, c := range []struct {
		version uint16
		goodbye []byte // how the last record begins
	}{
		{tls.VersionTLS12, []byte{recordAlert, 3, 3}},
		{tls.VersionTLS13, []byte{recordData, 3, 3, 0, goodbyeBytes - 5}},
	} {
		cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
			var heard bytes.Buffer
			secure := tls.Server(tappedConn{conn, io.TeeReader(conn, &heard)}, &tls.Config{Certificates: []tls.Certificate{pair}, MaxVersion: c.version})
			if _, err := io.ReadAll(secure); err != nil { // to the client's end
				t.Error(err)
			}
			var last []byte
			for b := heard.Bytes(); len(b) >= 5; b = b[5+(int(b[3])<<8|int(b[4])):] {
				last = b
			}
			if !bytes.HasPrefix(last, c.goodbye) {
				t.Errorf("TLS %x: the last record is %x", c.version, last)
			}
			_, _ = io.WriteString(secure, "HTTP/1.1 200 OK\r\n\r\nlate")
			_ = secure.Close()
		}))
		cfg.Listeners[0].UpstreamTLS = &ClientTLS{CA: a.file("ca.crt")}
		conn := dialProxy(t, startProxy(t, cfg))
		say(t, conn, "GET / HTTP/1.0\r\n\r\n")
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(conn)
		if err != nil || !bytes.HasSuffix(b, []byte("late")) {
			t.Errorf("TLS %x: got %q, %v", c.version, b, err)
		}
	}
}

// tappedConn is a connection that is read through something.
type tappedConn struct {
	net.Conn
	r io.Reader
}

// Read implements [net.Conn].
func (c tappedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// TestTLSCancel says that the callee sees a client that goes away while it waits.
func TestTLSCancel(t *testing.T) {
	a := newAuthority(t)
	pair := a.issue(t, "upstream", "prices")
	reached, gone := make(chan struct{}, 2), make(chan struct{}, 2)
	cfg := a.terminating(t, secureServer(t, &tls.Config{Certificates: []tls.Certificate{pair}}, func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	cfg.Listeners[0].UpstreamTLS = &ClientTLS{CA: a.file("ca.crt")}
	p := startProxy(t, cfg)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conn := tls.Client(dialProxy(t, p), &tls.Config{RootCAs: a.pool, ServerName: "shop", MaxVersion: version})
		say(t, conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		<-reached
		_ = conn.Close() // it says goodbye, and so there is something to read
		select {
		case <-gone:
		case <-time.After(5 * time.Second):
			t.Errorf("TLS %x: the callee works on for nobody", version)
		}
	}
}

// TestTLSUpstreamFails says what clients see when the upstream is not who it should be.
func TestTLSUpstreamFails(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	pair := a.issue(t, "upstream", "prices")
	ok := func(http.ResponseWriter, *http.Request) {}
	secure := secureServer(t, &tls.Config{Certificates: []tls.Certificate{pair}}, ok)
	mutual := secureServer(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool, MaxVersion: tls.VersionTLS12}, ok)
	for _, c := range []struct {
		name, upstream string
		tls            ClientTLS
		status         int
	}{
		{"good", secure, ClientTLS{CA: a.file("ca.crt")}, 200},
		{"good by name", secure, ClientTLS{CA: a.file("ca.crt"), ServerName: "prices"}, 200},
		{"anybody", secure, ClientTLS{Insecure: true}, 200},
		{"the host's authorities", secure, ClientTLS{}, 503},
		{"another authority", secure, ClientTLS{CA: other.file("ca.crt")}, 503},
		{"another name", secure, ClientTLS{CA: a.file("ca.crt"), ServerName: "cart"}, 503},
		{"no TLS there", httpServer(t, ok), ClientTLS{Insecure: true}, 503},
		{"says nothing", rawServer(t, func(conn *net.TCPConn, _ int) { _, _ = io.Copy(io.Discard, conn) }), ClientTLS{Insecure: true}, 503},
		{"needs a certificate", mutual, ClientTLS{CA: a.file("ca.crt")}, 503},
		{"has a certificate", mutual, ClientTLS{CA: a.file("ca.crt"), Cert: a.file("upstream.crt"), Key: a.file("upstream.key")}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := outboundTo(c.upstream)
			cfg.Listeners[0].UpstreamTLS = &c.tls
			cfg.Timeouts.Connect = 2 * time.Second
			if c.name == "says nothing" {
				cfg.Timeouts.Connect = 100 * time.Millisecond
			}
			p := startProxy(t, cfg)
			client := protocolClient(t, false, nil)
			for range 2 {
				if got := post(t, client, "http://"+p.Addr(0).String()+"/", "x"); got.status != c.status {
					t.Errorf("status %d, want %d", got.status, c.status)
				}
			}
			if failed := p.metrics.get(metricTLSErrors) > 0; failed != (c.status != 200) {
				t.Errorf("%d errors counted", p.metrics.get(metricTLSErrors))
			}
		})
	}
}

// TestTLSClients says which clients get in: none without the certificate that is asked
// for, none that does not speak TLS, none that takes its time.
func TestTLSClients(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	cfg := a.terminating(t, httpServer(t, func(http.ResponseWriter, *http.Request) {}))
	cfg.Listeners[0].TLS.ClientCA = a.file("ca.crt")
	cfg.Timeouts.Head = 200 * time.Millisecond
	p := startProxy(t, cfg)
	for _, c := range []struct {
		name string
		pair *tls.Certificate
		ok   bool
	}{
		{"none", nil, false},
		{"good", ptr(a.issue(t, "client", "client")), true},
		{"another authority's", ptr(other.issue(t, "client", "client")), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := a.client()
			if c.pair != nil {
				client.Certificates = []tls.Certificate{*c.pair}
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Addr(0).String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := protocolClient(t, false, client).RoundTrip(r)
			if (err == nil) != c.ok {
				t.Errorf("error %v", err)
			}
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	t.Run("plain", func(t *testing.T) {
		conn := dialProxy(t, p)
		say(t, conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if b, _ := io.ReadAll(conn); !bytes.HasPrefix(b, []byte("HTTP/1.1 400 ")) {
			t.Errorf("got %q", b)
		}
	})
	t.Run("silent", func(t *testing.T) {
		conn := dialProxy(t, p)
		begun := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(begun) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

func ptr[T any](v T) *T { return &v }

// TestTLSProtocols says what clients and upstreams agree on.
func TestTLSProtocols(t *testing.T) {
	a := newAuthority(t)
	pair := a.issue(t, "upstream", "prices")
	for _, c := range []struct {
		name          string
		offered, want []string
		got           string
	}{
		{"default", nil, []string{"h2", "http/1.1"}, "h2"},
		{"old client", nil, []string{"http/1.1"}, "http/1.1"},
		{"no ALPN", nil, nil, ""},
		{"upstream without HTTP/2", []string{"http/1.1"}, []string{"h2", "http/1.1"}, "http/1.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := a.terminating(t, httpServer(t, func(http.ResponseWriter, *http.Request) {}))
			cfg.Listeners[0].TLS.ALPN = c.offered
			conn := tls.Client(dialProxy(t, startProxy(t, cfg)), &tls.Config{RootCAs: a.pool, ServerName: "shop", NextProtos: c.want})
			if err := conn.HandshakeContext(t.Context()); err != nil || conn.ConnectionState().NegotiatedProtocol != c.got {
				t.Errorf("%q, %v", conn.ConnectionState().NegotiatedProtocol, err)
			}
		})
	}
	t.Run("what was agreed is spoken", func(t *testing.T) {
		p := startProxy(t, a.terminating(t, httpServer(t, func(http.ResponseWriter, *http.Request) {})))
		for protocol, says := range map[string]string{"h2": ordinaryRequest, "http/1.1": preface} {
			conn := tls.Client(dialProxy(t, p), &tls.Config{RootCAs: a.pool, ServerName: "shop", NextProtos: []string{protocol}})
			say(t, conn, says)
			if b, _ := io.ReadAll(conn); len(b) > 0 && !bytes.HasPrefix(b, []byte("HTTP/1.1 505 ")) {
				t.Errorf("%s: %q", protocol, b)
			}
		}
		if n := p.metrics.get(metricMalformed); n != 2 {
			t.Errorf("%d counted, want 2", n)
		}
	})
	t.Run("upstream has no HTTP/2", func(t *testing.T) {
		cfg := outboundTo(secureServer(t, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}, echoBody))
		cfg.Listeners[0].UpstreamTLS = &ClientTLS{CA: a.file("ca.crt")}
		p := startProxy(t, cfg)
		if got := post(t, protocolClient(t, false, nil), "http://"+p.Addr(0).String()+"/", "x"); got.body != "x" {
			t.Errorf("HTTP/1.1: %+v", got)
		}
	})
}

// TestTLSCurl has curl as a client, over both protocols.
func TestTLSCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no curl: apt-get install curl")
		}
		t.Skip("no curl: apt-get install curl")
	}
	a := newAuthority(t)
	p := startProxy(t, a.terminating(t, httpServer(t, echoBody)))
	for _, args := range [][]string{
		{"--http1.1"},
		{"--http1.0"},
		{"--http2"},
		{"--tlsv1.2", "--tls-max", "1.2"},
		{"--http1.1", "-H", "Expect: 100-continue"},
		{"--http1.1", "-H", "Transfer-Encoding: chunked"},
	} {
		body := strings.Repeat("some bytes ", 20000)
		cmd := exec.CommandContext(t.Context(), curl, append(args, "-sS", "--max-time", "10", "--cacert", a.file("ca.crt"),
			"--data-binary", "@-", "https://"+p.Addr(0).String()+"/")...)
		cmd.Stdin = strings.NewReader(body)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != body {
			t.Errorf("%v: %d bytes of %d, %v: %.200s", args, len(out), len(body), err, out)
		}
	}
}

// TestTLSGRPC has grpc-go as a client and as a server, with TLS at either end.
func TestTLSGRPC(t *testing.T) {
	a := newAuthority(t)
	pair := a.issue(t, "upstream", "prices")
	plain := echoGRPC(t, make(chan struct{}, 1))
	front := tlsFront(t, plain, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	originating := outboundTo(front)
	originating.Listeners[0].UpstreamTLS = &ClientTLS{CA: a.file("ca.crt")}
	for _, c := range []struct {
		name   string
		config *Config
		creds  credentials.TransportCredentials
	}{
		{"terminates", a.terminating(t, plain), credentials.NewTLS(a.client())},
		{"originates", originating, insecure.NewCredentials()},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startProxy(t, c.config)
			conn, err := grpc.NewClient("passthrough:///"+p.Addr(0).String(), grpc.WithTransportCredentials(c.creds),
				grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			ctx, cancel := context.WithTimeout(traced(behaviour.OrdinaryTrace), 20*time.Second)
			defer cancel()
			for _, size := range []int{0, 5, 1 << 20} {
				want := bytes.Repeat([]byte{7}, size)
				var got []byte
				if err := conn.Invoke(ctx, "/s/Echo", &want, &got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("unary of %d bytes: %d back, %v", size, len(got), err)
				}
				if err := bidi(ctx, conn, want, 10); err != nil {
					t.Errorf("stream of %d bytes a message: %v", size, err)
				}
			}
			if p.metrics.get(metricRequestsHTTP2) == 0 {
				t.Error("nothing was seen")
			}
		})
	}
}

// TestBehaviourTLS is the table of behaviours, with TLS terminated and originated by
// the sidecar: faults, streams and tunnels do not feel it.
func TestBehaviourTLS(t *testing.T) {
	a := newAuthority(t)
	pair := a.issue(t, "server", "shop")
	e, err := behaviour.NewEndpoints()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	upstream := tlsFront(t, e.Callee(), &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{alpnHTTP2, alpnHTTP1}})
	server := &ServerTLS{Cert: a.file("server.crt"), Key: a.file("server.key")}
	client := &ClientTLS{CA: a.file("ca.crt"), ServerName: "shop"}
	p := startProxy(t, &Config{
		Service: behaviour.Service,
		Listeners: []Listener{
			{Role: tfi.RoleServer, Listen: "127.0.0.1:0", Upstream: upstream, TLS: server, UpstreamTLS: client},
			{Role: tfi.RoleClient, Listen: "127.0.0.1:0", Upstream: upstream, Cluster: behaviour.PeerHTTP1, TLS: server, UpstreamTLS: client},
		},
		Clusters: map[string]string{behaviour.ReportCluster: e.Collector()},
	})
	cfg := &tls.Config{RootCAs: a.pool, ServerName: "shop"}
	e.Inbound, e.Outbound = tlsBack(t, p.Addr(0).String(), cfg), tlsBack(t, p.Addr(1).String(), cfg)
	cases := behaviour.Table()
	for i := range cases {
		for j := range cases[i].Calls { // two handshakes come before the callee is reached
			cases[i].Calls[j].LeaveAfter *= 10
		}
	}
	behaviour.Run(t, &nativeSidecar{Endpoints: e, proxy: p}, behaviour.Sockets, cases)
	if n := p.metrics.get(metricInternal); n != 0 {
		t.Errorf("%d internal errors", n)
	}
}

// TestTLSIdle nudges connections that speak TLS, as TestNudge does plain ones.
func TestTLSIdle(t *testing.T) {
	a := newAuthority(t)
	p := startProxy(t, a.terminating(t, echoHTTP1(t, plainAnswer)))
	conn := tls.Client(dialProxy(t, p), &tls.Config{RootCAs: a.pool, ServerName: "shop"})
	b := make([]byte, len(plainAnswer))
	for range 50 {
		say(t, conn, ordinaryRequest)
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != plainAnswer {
			t.Fatalf("%q, %v", b, err)
		}
		for range 5 {
			p.conns.nudge()
			time.Sleep(time.Millisecond)
		}
	}
}
