// Command reverseproxy is Go's own httputil.ReverseProxy, as a reference.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stderr)) }

func doMain(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("reverseproxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "", "address (host:port)")
	upstream := flags.String("upstream", "", "where requests go (host:port)")
	if err := flags.Parse(args); err != nil {
		return 64
	}
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: *upstream})
	// All connections to the one upstream are kept, as the others keep them.
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 1 << 16, DisableCompression: true}
	s := &http.Server{Addr: *listen, Handler: p} //nolint:gosec // on loopback
	fmt.Fprintln(stderr, "reverseproxy:", s.ListenAndServe())
	return 1
}
