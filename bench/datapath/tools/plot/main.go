// Command plot draws what datapath has measured, from the CSV files in a folder,
// as SVG files beside them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stderr)) }

func doMain(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("plot", flag.ContinueOnError)
	flags.SetOutput(stderr)
	format := flags.String("format", "svg", "svg, png or pdf")
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 {
		fmt.Fprintln(stderr, "usage: plot [-format svg] out/datapath")
		return 64
	}
	if err := drawAll(flags.Arg(0), *format); err != nil {
		fmt.Fprintln(stderr, "plot:", err)
		return 1
	}
	return 0
}

// drawAll draws every picture that there are measurements for.
func drawAll(dir, format string) error {
	samples, err := readSamples(filepath.Join(dir, "samples.csv"))
	if err != nil {
		return err
	}
	latencies, err := readSamples(filepath.Join(dir, "latency.csv"))
	if err != nil {
		return err
	}
	cpu, rate := column("cpu_us_per_request"), column("requests_per_second")
	var errs []error
	for _, f := range []figure{
		{"cpu-http1", "HTTP/1.1, no body: CPU of the proxy", "connections", "µs a request", choose(samples, "get", 0, anyNumber), byConnections, cpu},
		{"cpu-body", "HTTP/1.1, 8 connections: CPU of the proxy", "bytes of an answer (1: none)", "µs a request", choose(samples, "get", anyNumber, 8), byBytes, cpu},
		{"cpu-unary", "gRPC unary, 10 calls at once on each connection: CPU of the proxy", "connections", "µs a call", choose(samples, "unary", 0, anyNumber), byConnections, cpu},
		{"cpu-bidi", "gRPC bidirectional streams, 1 KiB messages to and fro: CPU of the proxy", "connections", "µs a message", choose(samples, "bidi", 1024, anyNumber), byConnections, cpu},
		{"rate-http1", "HTTP/1.1, no body: as fast as answered", "connections", "requests a second", choose(samples, "get", 0, anyNumber), byConnections, rate},
		{"rate-unary", "gRPC unary: as fast as answered", "connections", "calls a second", choose(samples, "unary", 0, anyNumber), byConnections, rate},
		{"p50-http1", "HTTP/1.1, 16 connections, fixed rate: median latency", "requests a second", "µs", choose(latencies, "get", 0, 16), byRate, column("p50_us")},
		{"p99-http1", "HTTP/1.1, 16 connections, fixed rate: p99 latency", "requests a second", "µs", choose(latencies, "get", 0, 16), byRate, column("p99_us")},
		{"p50-unary", "gRPC unary, 4 connections, fixed rate: median latency", "calls a second", "µs", choose(latencies, "unary", 0, 4), byRate, column("p50_us")},
		{"p99-unary", "gRPC unary, 4 connections, fixed rate: p99 latency", "calls a second", "µs", choose(latencies, "unary", 0, 4), byRate, column("p99_us")},
	} {
		if len(f.rows) > 0 {
			errs = append(errs, f.draw(filepath.Join(dir, f.name+"."+format)))
		}
	}
	errs = append(errs, drawMemory(dir, format))
	return errors.Join(errs...)
}
