package testbed

// Types that the gate's JSON names: protojson finds them by name only if they are linked in.
import (
	_ "github.com/cncf/xds/go/xds/type/matcher/v3"                                        // see above
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3" // see above
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"      // see above
	_ "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"                      // see above
)
