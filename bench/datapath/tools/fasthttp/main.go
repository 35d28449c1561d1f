// Command fasthttp is a reverse proxy made with valyala/fasthttp, as a reference:
// what the usual fast HTTP library of Go costs in its place.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/valyala/fasthttp"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stderr)) }

func doMain(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("fasthttp", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "", "address (host:port)")
	upstream := flags.String("upstream", "", "where requests go (host:port)")
	if err := flags.Parse(args); err != nil {
		return 64
	}
	s := &fasthttp.Server{
		Handler:               proxy(*upstream),
		NoDefaultServerHeader: true, NoDefaultDate: true, NoDefaultContentType: true,
	}
	fmt.Fprintln(stderr, s.ListenAndServe(*listen))
	return 1
}

// proxy forwards every request, head and body, and its answer.
func proxy(upstream string) fasthttp.RequestHandler {
	client := &fasthttp.HostClient{
		Addr: upstream, MaxConns: 1 << 16, MaxIdleConnDuration: time.Hour,
		NoDefaultUserAgentHeader: true, DisableHeaderNamesNormalizing: true, DisablePathNormalizing: true,
	}
	return func(ctx *fasthttp.RequestCtx) {
		ctx.Request.Header.Del(fasthttp.HeaderConnection)
		if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
			ctx.Error("upstream: "+err.Error(), fasthttp.StatusBadGateway)
			return
		}
		ctx.Response.Header.Del(fasthttp.HeaderConnection)
	}
}
