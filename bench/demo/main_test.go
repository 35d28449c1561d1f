package demo

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(planeEnv); dir != "" {
		os.Exit(planeMain(dir))
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	built.Range(func(dir, _ any) bool {
		_ = os.RemoveAll(dir.(string)) // temporary anyway
		return true
	})
	os.Exit(code)
}
