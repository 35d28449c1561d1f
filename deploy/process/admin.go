package process

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Admin is a program's admin port, asked over HTTP. A connection is used once: ports
// that are asked now and then need not keep any.
type Admin struct {
	addr   string
	client http.Client
}

// NewAdmin returns the admin port at addr, a host:port.
func NewAdmin(addr string) *Admin {
	return &Admin{addr: addr, client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Addr is its host:port.
func (a *Admin) Addr() string { return a.addr }

// Get reads path.
//
// Errors: one that has the status and body where the status is not 200.
func (a *Admin) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.addr+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.200s", path, resp.Status, body)
	}
	return body, nil
}
