package ecds_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(subprocessEnv) != "" {
		os.Exit(planeProcess(os.Stdin, os.Stdout))
	}
	code := m.Run()
	client.CloseIdleConnections()
	removePlugin()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}
