// Package tfiproxy holds what puts the native sidecar in front of a service: the
// script that redirects connections to its transparent ports, and the test of it in
// network namespaces of its own. The sidecar itself is plugin/tfiproxy.
package tfiproxy
