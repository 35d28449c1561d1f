// Package tfiproxy starts the native sidecar as a process of its own ([Start]), and
// holds what puts it in front of a service that knows nothing of it: the script that
// redirects connections to its transparent ports, and the test of it in network
// namespaces of its own. The sidecar itself is plugin/tfiproxy.
package tfiproxy
