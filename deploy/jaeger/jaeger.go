// Package jaeger starts a real Jaeger v2 with a store of its own.
//
// The store is Badger, in files: Jaeger's store in memory (v1.76.0) hands out
// traces that it goes on appending to, and panics when one is read at the moment
// at which a span of it comes in.
package jaeger

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sequencefi/sequencefi/deploy/process"
)

// Find returns the path of the Jaeger binary: that in the environment variable
// JAEGER_BINARY, else .tools/bin/jaeger here or above.
//
// Errors: [process.ErrNoTool].
func Find() (string, error) { return process.Tool("jaeger", "JAEGER_BINARY") }

// Options of [Start].
type Options struct {
	// Path of the binary; empty: what Find returns.
	Path string
	// Dir is where its configuration and log are written; required. What it stores
	// is in Dir/jaeger-data, from Start to Stop.
	Dir string
}

// Jaeger is a running Jaeger and where it listens (host:port).
type Jaeger struct {
	*process.Process
	// Query is the gRPC query service, UI the HTTP one.
	Query, UI string
	// OTLPHTTP and OTLPGRPC take spans.
	OTLPHTTP, OTLPGRPC string

	data string // folder of its store
}

// readyTimeout bounds its start, which takes 0.1 s on an idle machine.
const readyTimeout = 30 * time.Second

// Start starts a Jaeger on free loopback ports and returns when it serves.
//
// Errors: [process.ErrNoTool]; [process.ErrEnded] with the end of its log; ctx's.
func Start(ctx context.Context, o Options) (*Jaeger, error) {
	if o.Path == "" {
		path, err := Find()
		if err != nil {
			return nil, err
		}
		o.Path = path
	}
	addrs, err := process.FreeAddrs(ctx, 4)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "jaeger-data")
	if err := os.RemoveAll(data); err != nil {
		return nil, err
	}
	j := &Jaeger{data: data, Query: addrs[0], UI: addrs[1], OTLPHTTP: addrs[2], OTLPGRPC: addrs[3]}
	config := filepath.Join(o.Dir, "jaeger.yaml")
	b, err := j.config()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, b, 0o600); err != nil {
		return nil, err
	}
	j.Process, err = process.Start(process.Options{Name: "jaeger", Path: o.Path, Args: []string{"--config", config}, LogDir: o.Dir})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, check := range []func(context.Context) error{j.answers, listens(j.Query), listens(j.OTLPHTTP), listens(j.OTLPGRPC)} {
		if err := j.WaitReady(ctx, check); err != nil {
			j.Stop()
			return nil, err
		}
	}
	return j, nil
}

// Stop ends Jaeger and removes what it has stored.
func (j *Jaeger) Stop() {
	j.Process.Stop()
	_ = os.RemoveAll(j.data) // of no use to anybody
}

// config is Jaeger's configuration: OTLP in, a store, queries out.
func (j *Jaeger) config() ([]byte, error) {
	endpoint := func(addr string) map[string]any { return map[string]any{"endpoint": addr} }
	return yaml.Marshal(map[string]any{
		"service": map[string]any{
			"extensions": []string{"jaeger_storage", "jaeger_query"},
			"pipelines": map[string]any{"traces": map[string]any{
				"receivers": []string{"otlp"}, "exporters": []string{"jaeger_storage_exporter"},
			}},
			"telemetry": map[string]any{
				"metrics": map[string]any{"level": "none"},
				"logs":    map[string]any{"level": "warn"},
			},
		},
		"extensions": map[string]any{
			"jaeger_query": map[string]any{
				"storage": map[string]any{"traces": "files"},
				"http":    endpoint(j.UI), "grpc": endpoint(j.Query),
				// It would send its own spans to port 4317 of this machine.
				"enable_tracing": false,
			},
			"jaeger_storage": map[string]any{"backends": map[string]any{
				"files": map[string]any{"badger": map[string]any{
					"ephemeral":   false,
					"directories": map[string]any{"keys": j.data, "values": j.data},
				}},
			}},
		},
		"receivers": map[string]any{"otlp": map[string]any{"protocols": map[string]any{
			"grpc": endpoint(j.OTLPGRPC), "http": endpoint(j.OTLPHTTP),
		}}},
		"exporters": map[string]any{"jaeger_storage_exporter": map[string]any{"trace_storage": "files"}},
	})
}

func (j *Jaeger) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+j.UI+"/api/services", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("query service: %s", resp.Status)
	}
	return nil
}

func listens(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
