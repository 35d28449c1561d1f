package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
)

// self is a topology of one service that calls itself, so that a request passes
// an outbound and an inbound listener of one Envoy. It returns where to send to.
func self(t *testing.T, app, protocol string) (outbound string) {
	t.Helper()
	outbound = envoytest.FreeAddr(t)
	top := &topology.Topology{
		XDS: "127.0.0.1:1", OTLP: "127.0.0.1:2", // nobody: a sidecar serves without a plane
		Services: []topology.Service{{
			Name: "self", App: app, Protocol: protocol,
			Inbound: envoytest.FreeAddr(t), Admin: envoytest.FreeAddr(t),
			Calls: []topology.Call{{Service: "self", Listen: outbound}},
		}},
	}
	start(t, top, "self")
	return outbound
}

// rawServer answers one raw HTTP/1.1 request a connection with reply, and gives
// what it read up to the blank line.
func rawServer(t *testing.T, reply func(head string, conn net.Conn, r *bufio.Reader)) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				var head strings.Builder
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if line == "\r\n" {
						break
					}
					head.WriteString(line)
				}
				reply(head.String(), conn, r)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func lines(head string) []string {
	l := strings.Split(strings.TrimSpace(strings.ReplaceAll(head, "\r\n", "\n")), "\n")
	slices.Sort(l)
	return l
}

// TestHeadsPassUnchanged compares heads line by line, case included.
func TestHeadsPassUnchanged(t *testing.T) {
	seen := make(chan string, 1)
	app := rawServer(t, func(head string, conn net.Conn, _ *bufio.Reader) {
		seen <- head
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nServer: App/1\r\nDate: Sun, 01 Jan 2023 00:00:00 GMT\r\nX-CamelCase: yes\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 2\r\nX-Request-Id: app\r\n\r\nok")
	})
	out := self(t, app, topology.ProtocolHTTP)
	for _, tc := range []struct{ name, request string }{
		{name: "plain", request: "GET /a/../b//c%2F?q=%20&x HTTP/1.1\r\nHost: shop.example\r\nX-CamelCase: 1\r\naccept: */*\r\nunder_score: 1\r\n"},
		{name: "tracing", request: "GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: r\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: a=b\r\nX-B3-TraceId: 463ac35c9f6413ad\r\nbaggage: a=b\r\n"},
		{name: "many", request: "GET / HTTP/1.1\r\nHost: h\r\n" + manyHeaders(300)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, r := dial(t, out)
			fmt.Fprint(conn, tc.request+"\r\n")
			head, body := readAnswer(t, r)
			if diff := cmp.Diff(lines(tc.request), lines(<-seen)); diff != "" {
				t.Errorf("request: -sent +seen by the application:\n%s", diff)
			}
			want := lines("HTTP/1.1 200 OK\r\nServer: App/1\r\nDate: Sun, 01 Jan 2023 00:00:00 GMT\r\nX-CamelCase: yes\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 2\r\nX-Request-Id: app")
			if diff := cmp.Diff(want, lines(head)); diff != "" || body != "ok" {
				t.Errorf("answer: body %q, -sent +seen by the client:\n%s", body, diff)
			}
		})
	}
}

func manyHeaders(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-H%d: %s\r\n", i, strings.Repeat("v", 100))
	}
	return b.String()
}

// readAnswer reads one answer with a two-byte body.
func readAnswer(t *testing.T, r *bufio.Reader) (head, body string) {
	t.Helper()
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("answer: %v after %q", err, b.String())
		}
		if line == "\r\n" {
			break
		}
		b.WriteString(line)
	}
	two := make([]byte, 2)
	if _, err := io.ReadFull(r, two); err != nil {
		t.Fatal(err)
	}
	return b.String(), string(two)
}

// TestHTTP11 passes what a plain proxy must not change.
func TestHTTP11(t *testing.T) {
	goOn := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush() // the client has gone: the test fails anyway
			<-goOn
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		body, _ := io.ReadAll(r.Body)
		n, _ := w.Write(body)
		w.Header().Set("X-Sum", fmt.Sprint(n))
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, _ *http.Request) {
		// The body is not read: Go sends no 100.
		http.Error(w, "no", http.StatusForbidden)
	})
	mux.HandleFunc("/empty", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); goOn <- struct{}{} })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	out := self(t, srv.Listener.Addr().String(), topology.ProtocolHTTP)
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 5 * time.Second}, Timeout: 20 * time.Second}
	t.Cleanup(client.CloseIdleConnections)

	t.Run("events chunk by chunk", func(t *testing.T) {
		resp := do(t, client, http.MethodGet, "http://"+out+"/events", nil)
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		for i := range 3 {
			// The application sends the next event only after this one was read.
			if line, err := r.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("event %d: %q %v", i, line, err)
			}
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			goOn <- struct{}{}
		}
	})
	t.Run("large chunked body with trailer", func(t *testing.T) {
		const size = 8 << 20
		resp := do(t, client, http.MethodPost, "http://"+out+"/echo", io.LimitReader(ones{}, size))
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != size || resp.Trailer.Get("X-Sum") != fmt.Sprint(size) {
			t.Errorf("%d bytes, trailer %v, %v", n, resp.Trailer, err)
		}
	})
	t.Run("expect continue", func(t *testing.T) {
		read := &countingReader{}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+out+"/refuse", read)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Expect", "100-continue")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden || read.n != 0 {
			t.Errorf("status %d after %d bytes of body: the sidecar asked for the body itself", resp.StatusCode, read.n)
		}
	})
	t.Run("no content, HEAD, HTTP/1.0", func(t *testing.T) {
		empty := do(t, client, http.MethodGet, "http://"+out+"/empty", nil)
		defer empty.Body.Close()
		if empty.StatusCode != http.StatusNoContent {
			t.Errorf("status %d", empty.StatusCode)
		}
		head := do(t, client, http.MethodHead, "http://"+out+"/refuse", nil)
		defer head.Body.Close()
		if head.ContentLength != 3 {
			t.Errorf("HEAD: length %d", head.ContentLength)
		}
		conn, r := dial(t, out)
		fmt.Fprint(conn, "GET /empty HTTP/1.0\r\n\r\n")
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "204") {
			t.Errorf("HTTP/1.0: %q %v", line, err)
		}
	})
	t.Run("client gone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		conn, _ := dial(t, out)
		fmt.Fprint(conn, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
		context.AfterFunc(ctx, func() { conn.Close() })
		cancel()
		select {
		case <-goOn: // the application has seen it
		case <-time.After(10 * time.Second):
			t.Error("the application was not told")
		}
	})
}

func TestWebsocketUpgrade(t *testing.T) {
	app := rawServer(t, func(head string, conn net.Conn, r *bufio.Reader) {
		if !strings.Contains(head, "Upgrade: websocket") {
			fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno")
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")
		for {
			b, err := r.ReadByte()
			if err != nil {
				return
			}
			if _, err := conn.Write([]byte{b + 1}); err != nil {
				return
			}
		}
	})
	conn, r := dial(t, self(t, app, topology.ProtocolHTTP))
	fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\r\n")
	tp := textproto.NewReader(r)
	line, err := tp.ReadLine()
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 101") {
		t.Fatalf("%q %v", line, err)
	}
	head, err := tp.ReadMIMEHeader()
	if err != nil || head.Get("Sec-Websocket-Accept") != "x" {
		t.Fatalf("%v %v", head, err)
	}
	for i := range 5 {
		if _, err := conn.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if b, err := r.ReadByte(); err != nil || b != byte(i+1) {
			t.Fatalf("byte %d: %d %v", i, b, err)
		}
	}
}

// TestRefused is what a sidecar does not pass on; deploy/standalone says so.
func TestRefused(t *testing.T) {
	app := rawServer(t, func(_ string, conn net.Conn, _ *bufio.Reader) {
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	out := self(t, app, topology.ProtocolHTTP)
	for name, request := range map[string]string{
		"another upgrade": "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: chat/1\r\nConnection: Upgrade\r\n\r\n",
		"CONNECT":         "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
	} {
		conn, r := dial(t, out)
		fmt.Fprint(conn, request)
		if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 4") {
			t.Errorf("%s: %q %v", name, line, err)
		}
	}
}

func TestGRPC(t *testing.T) {
	seen := make(chan metadata.MD, 8)
	// Echoes every message; ends with the status that the request asks for.
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		seen <- md
		if err := s.SetHeader(metadata.Pairs("x-head", "1")); err != nil {
			return err
		}
		s.SetTrailer(metadata.Pairs("x-trail", "2"))
		for {
			var m wrapperspb.StringValue
			if err := s.RecvMsg(&m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if m.GetValue() == "fail" {
				return status.Error(codes.DataLoss, "lost: ü %")
			}
			if err := s.SendMsg(&m); err != nil {
				return err
			}
		}
	}))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }() // ends by Stop
	t.Cleanup(srv.Stop)
	cc, err := grpc.NewClient("passthrough:///"+self(t, l.Addr().String(), topology.ProtocolGRPC),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	t.Run("bidi message by message", func(t *testing.T) {
		var trailer metadata.MD
		s, err := cc.NewStream(metadata.AppendToOutgoingContext(ctx, "x-one", "1"), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/shop.Cart/Watch", grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			want := wrapperspb.String(fmt.Sprint(i))
			var got wrapperspb.StringValue
			if err := errors.Join(s.SendMsg(want), s.RecvMsg(&got)); err != nil || got.GetValue() != want.GetValue() {
				t.Fatalf("message %d: %q %v", i, got.GetValue(), err)
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&wrapperspb.StringValue{}); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		head, err := s.Header()
		if err != nil || !slices.Equal(head["x-head"], []string{"1"}) || !slices.Equal(trailer["x-trail"], []string{"2"}) {
			t.Errorf("header %v trailer %v %v", head, trailer, err)
		}
		names := slices.Sorted(maps.Keys(<-seen))
		want := []string{":authority", "content-type", "user-agent", "x-one"}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("metadata: -sent +seen:\n%s", diff)
		}
	})
	t.Run("status", func(t *testing.T) {
		err := cc.Invoke(ctx, "/shop.Cart/Get", wrapperspb.String("fail"), &wrapperspb.StringValue{})
		if s := status.Convert(err); s.Code() != codes.DataLoss || s.Message() != "lost: ü %" {
			t.Errorf("%v", err)
		}
		<-seen
	})
}

// do sends a request; the caller closes the body.
func do(t *testing.T, client *http.Client, method, url string, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '1'
	}
	return len(p), nil
}

// countingReader is a body that tells whether it was asked for.
type countingReader struct{ n int }

func (c *countingReader) Read(p []byte) (int, error) {
	c.n += len(p)
	return 0, io.EOF
}
