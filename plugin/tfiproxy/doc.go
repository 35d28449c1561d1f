// Package tfiproxy is the native sidecar: the engine of package tfi in a small
// proxy of its own, for services without Envoy. Its policies, its evidence on the wire,
// its events and its answers are those of the Envoy filter, so that a mesh may mix both.
//
// It is not a general proxy: it routes nothing, balances nothing and retries
// nothing but a request that an idle connection swallowed. A port leads to one upstream.
//
// Read first: [Config], which says what there is to set; [Proxy]; and conn, one
// client connection with its upstream connection.
//
// # Bytes are forwarded, not made anew
//
// A message's head is scanned in place and passed on as it came; only a message of
// a trial gets, or loses, a header. A client connection owns one upstream connection, so
// that what either end does to its connection the other end sees: close, half-close,
// pipelining, flow control. Traffic of no trial costs a comparison of its trace
// headers with four characters, and no allocation.
//
// # What is refused
//
// HTTP/1: a length that is announced twice or in two ways, a transfer coding other
// than chunked, folded lines, blanks before a colon, control bytes, bare line feeds, a
// missing or second Host, malformed chunks, oversized heads. Two parsers that disagree
// about where such a message ends let one message hide in another. Requests get 400,
// 431, 501 or 505 and the connection ends; an answer becomes 502.
//
// # What is not seen
//
// TLS that is not terminated here, CONNECT and what follows an upgrade pass through
// as bytes, counted as unseen.
package tfiproxy
