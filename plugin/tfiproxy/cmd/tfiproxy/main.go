// Command tfiproxy is the native sidecar; see package tfiproxy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/sequencefi/sequencefi/plugin/tfiproxy"
)

// version is set by the build.
var version = "unknown"

// Exit codes (sysexits.h).
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 64
)

func main() {
	os.Exit(doMain(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// doMain runs the sidecar until SIGTERM or SIGINT has drained it, or ctx ends.
func doMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("tfiproxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: tfiproxy [flags] config.json")
		flags.PrintDefaults()
	}
	check := flags.Bool("check", false, "only check the configuration")
	showVersion := flags.Bool("version", false, "print the version")
	var secrets secretFlags
	secrets.register(flags)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	if *showVersion {
		fmt.Fprintln(stdout, "tfiproxy", version)
		return exitOK
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return exitUsage
	}
	file := flags.Arg(0)
	cfg, err := tfiproxy.LoadConfig(file)
	if err != nil {
		fmt.Fprintf(stderr, "tfiproxy: %v\n", err)
		return exitUsage
	}
	if err := secrets.apply(cfg); err != nil {
		fmt.Fprintf(stderr, "tfiproxy: %v\n", err)
		return exitUsage
	}
	if err := tfiproxy.CheckFiles(cfg); err != nil {
		fmt.Fprintf(stderr, "tfiproxy: %s: %v\n", file, err)
		return exitUsage
	}
	if *check {
		fmt.Fprintf(stdout, "%s: ok\n", file)
		return exitOK
	}
	cfg.Version = version
	log := slog.New(slog.NewTextHandler(stderr, nil))
	p, err := tfiproxy.New(cfg, log)
	if err != nil {
		fmt.Fprintf(stderr, "tfiproxy: %v\n", err)
		return exitError
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for draining := false; ; {
			select {
			case <-ctx.Done():
				return
			case <-reload:
				if err := p.Reload(); err != nil {
					log.Error("certificates refused; the last good ones stay in use", "error", err)
				}
			case <-signals:
				if draining {
					cancel() // asked twice: no more patience
					return
				}
				draining = true
				log.Info("draining")
				p.Drain()
			}
		}
	}()
	for i, l := range cfg.Listeners {
		log.Info("listening", "address", p.Addr(i).String(), "upstream", l.Upstream)
	}
	if a := p.AdminAddr(); a != nil {
		log.Info("admin", "address", a.String())
	}
	shrink()
	if err := p.Run(ctx); err != nil {
		fmt.Fprintf(stderr, "tfiproxy: %v\n", err)
		return exitError
	}
	return exitOK
}
