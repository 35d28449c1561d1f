package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sequencefi/sequencefi/deploy/process"
)

func (b *bed) startTFIProxy(ctx context.Context) (*proxy, error) {
	program, err := b.build(ctx, "tfiproxy-program", ".", "./plugin/tfiproxy/cmd/tfiproxy")
	if err != nil {
		return nil, err
	}
	return b.runTFIProxy(ctx, tfiproxyName, program, b.proxyCPU)
}

// runTFIProxy starts one of them; command is what precedes the program.
func (b *bed) runTFIProxy(ctx context.Context, name, program string, command []string) (*proxy, error) {
	p, err := newProxy(ctx, name)
	if err != nil {
		return nil, err
	}
	admin, err := process.FreeAddrs(ctx, 1)
	if err != nil {
		return nil, err
	}
	p.admin, p.trials = admin[0], true
	version := 0
	policyFile := name + ".policy"
	file, err := b.writePolicy(policyFile, strconv.Itoa(version))
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"service": service, "workers": 1, "admin": p.admin, "profiles": name != tfiproxyName,
		"clusters": map[string]string{clusterCollector: b.collector},
		"outbound": []any{
			map[string]any{"listen": p.http, "upstream": b.http, "cluster": clusterHTTP},
			map[string]any{"listen": p.grpc, "upstream": b.grpc, "cluster": clusterGRPC},
		},
		"policy": map[string]any{"file": file},
	})
	if err != nil {
		return nil, err
	}
	configFile, err := b.write(name+".json", string(config))
	if err != nil {
		return nil, err
	}
	started, err := b.start(command, name, program, configFile)
	if err != nil {
		return nil, err
	}
	p.pid, p.stop = started.Pid(), started.Stop
	p.refresh = func(ctx context.Context) error {
		version++
		if _, err := b.writePolicy(policyFile, strconv.Itoa(version)); err != nil {
			return err
		}
		return ready(ctx, started, p.applied(strconv.Itoa(version)))
	}
	return p, ready(ctx, started, p.applied(strconv.Itoa(version)))
}

// applied returns a check that a TFIProxy has a version of the policy.
func (p *proxy) applied(version string) func(context.Context) error {
	return func(ctx context.Context) error {
		text, err := get(ctx, "http://"+p.admin+"/metrics")
		if err != nil {
			return err
		}
		if !bytes.Contains(text, fmt.Appendf(nil, "sequencefi_policy_info{version=%q}", version)) {
			return fmt.Errorf("policy %s is not applied", version)
		}
		return nil
	}
}

func get(ctx context.Context, url string) ([]byte, error) {
	return ask(ctx, http.MethodGet, url, nil)
}

func ask(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return b, err
}

// tfiproxyProgram is where startTFIProxy has built it.
func (b *bed) tfiproxyProgram() string { return filepath.Join(b.work, "tfiproxy-program") }
