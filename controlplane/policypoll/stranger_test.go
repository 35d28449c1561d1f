package policypoll

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestStrangers has sidecars without the token: they are counted, and forgotten when they
// show it.
func TestStrangers(t *testing.T) {
	var log bytes.Buffer
	handler, err := New(Config{Source: newPlane(t, time.Second), Token: "secret", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	changed := handler.Changed()
	const path = "/v1/policy/cart?instance=cart-1"
	for _, token := range []string{"", "Bearer wrong", "Basic secret"} {
		if got := get(t, server, path, token); got.status != http.StatusUnauthorized {
			t.Errorf("%q: status %d", token, got.status)
		}
	}
	select {
	case <-changed:
	default:
		t.Error("nobody is told")
	}
	got := handler.Strangers()
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	if age := time.Since(got[0].Last); age < 0 || age > time.Minute {
		t.Errorf("last seen %v ago", age)
	}
	if lines := strings.Count(log.String(), "poll without the token"); lines != 1 {
		t.Errorf("logged %d times, want once:\n%s", lines, log.String())
	}
	got[0].Last = time.Time{}
	if want := (Stranger{Service: "cart", Instance: "cart-1", Proxy: "curl/8.1", From: "127.0.0.1", Count: 3}); got[0] != want {
		t.Errorf("%+v, want %+v", got[0], want)
	}
	changed = handler.Changed()
	get(t, server, path, "Bearer secret")
	if got := handler.Strangers(); len(got) != 0 {
		t.Errorf("with the token: %+v", got)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody is told that it is let in")
	}
	for i := range maxStrangers + 10 {
		get(t, server, fmt.Sprintf("/v1/policy/cart%%ff?instance=%%ff%d", i), "")
	}
	all := handler.Strangers()
	if len(all) != maxStrangers {
		t.Errorf("%d strangers are known, want %d", len(all), maxStrangers)
	}
	for _, one := range all {
		if !utf8.ValidString(one.Service + one.Instance) {
			t.Fatalf("%q/%q", one.Service, one.Instance)
		}
		// They ask no more.
		handler.strangers.known[strangerKey{one.Service, one.Instance, one.From}].Last = time.Now().Add(-2 * strangerMemory)
	}
	if all := handler.Strangers(); len(all) != 0 {
		t.Errorf("%d strangers are still known", len(all))
	}
}
