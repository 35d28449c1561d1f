package ecds

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
	"unicode/utf8"
)

// TestPollRefusedAfterAll has a sidecar that refuses a policy, is started anew and accepts
// it, and then, after the plane has forgotten it, refuses it once more.
func TestPollRefusedAfterAll(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		f.refuse = "no room"
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		f.refuse, f.ask.Refused, f.ask.Reason = "", "", ""
		f.run(time.Second)
		if row := s.Sidecars()[0]; row.Acked != v || row.Nack != nil || len(row.Nacks) != 1 {
			t.Fatalf("%+v", row)
		}
		time.Sleep(time.Minute)
		f.ask.Holds, f.ask.Refused, f.ask.Reason = "", v, "no room any more"
		f.run(time.Second)
		var nack *NackError
		if err := s.Wait(t.Context(), v, []string{"cart"}); !errors.As(err, &nack) || nack.Version != v || nack.Message != "no room any more" {
			t.Errorf("Wait: %v", err)
		}
		if row := s.Sidecars()[0]; row.Nack == nil || row.Nack.Version != v {
			t.Errorf("%+v", row)
		}
	})
}

// TestPollRefusedEarlierPlane has a sidecar that refused a policy of the plane before: that
// says nothing of this one's, which it takes.
func TestPollRefusedEarlierPlane(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		f.refuse = "no room"
		mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		f.server, f.refuse = newTestServer(t, testConfig()), ""
		f.run(time.Second)
		if row := f.server.Sidecars()[0]; row.Nack != nil {
			t.Errorf("before it is told anything: %+v", row)
		}
		v := mustApply(t, f.server, onePolicy("cart", time.Hour, 2))
		f.run(time.Second)
		if row := f.server.Sidecars()[0]; row.Acked != v || row.Nack != nil || len(row.Nacks) != 0 {
			t.Errorf("%+v", row)
		}
	})
}

// TestPollOfNoText has a poll whose fields are not UTF-8, as reports must be.
func TestPollOfNoText(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, p := range []Poll{{Service: "cart\xff", Instance: "cart-1"}, {Service: "cart", Instance: "\xffcart-1"}} {
			if _, err := s.Poll(ctx, p); !errors.Is(err, ErrPoll) {
				t.Errorf("%q/%q: %v", p.Service, p.Instance, err)
			}
		}
		f.ask.Proxy, f.ask.ProxyVersion = "tfi\xffproxy", "1.\xff2"
		f.refuse = "no\xff room"
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		f.ask.Holds = v + "\xff"
		f.run(time.Second)
		rows := s.Sidecars()
		if len(rows) != 1 || rows[0].Nack == nil {
			t.Fatalf("%+v", rows)
		}
		texts := []string{rows[0].Proxy, rows[0].ProxyVersion, rows[0].Acked, rows[0].Nack.Message, rows[0].Nack.Version}
		if i := slices.IndexFunc(texts, func(s string) bool { return !utf8.ValidString(s) }); i >= 0 {
			t.Errorf("%q", texts)
		}
	})
}
