// Package workloadtest has tests be the commands of workloads.
package workloadtest

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// targetVariable is where in its environment a command finds its target.
const targetVariable = "WORKLOADTEST_TARGET"

// Command returns a step whose command is a test of the running program: one that begins with
// [NewClient].
func Command(test, target string, env map[string]string) *campaignv1.Step {
	all := map[string]string{targetVariable: target}
	maps.Copy(all, env)
	return &campaignv1.Step{Action: &campaignv1.Step_Command{Command: &campaignv1.Command{
		Argv: []string{os.Args[0], "-test.run=^" + test + "$"}, Env: all,
	}}}
}

// Client makes the requests of a command, each over a connection of its own, through the
// proxy that commands are given.
type Client struct {
	Target string
	t      *testing.T
	http   http.Client
}

// NewClient returns the client of a test that is run as a command. Any other run skips it.
func NewClient(t *testing.T) *Client {
	t.Helper()
	target := os.Getenv(targetVariable)
	if target == "" {
		t.Skip("it is the command of another test")
	}
	proxy, err := url.Parse(os.Getenv("HTTP_PROXY"))
	if err != nil {
		t.Fatal(err)
	}
	return &Client{target, t, http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}}
}

// Get makes a request with a header, unless that is empty. Errors: those of [http.Client].
func (c *Client) Get(target, header, value string) error {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, target, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if value != "" {
		request.Header.Set(header, value)
	}
	response, err := c.http.Do(request)
	if err == nil {
		_ = response.Body.Close() // nobody reads it
	}
	return err
}
