package tfiproxy

// declineHTTP2 takes the offer to go on with HTTP/2 (`Upgrade: h2c`, which RFC 9113
// has withdrawn, and with which Java's client begins) out of a scanned request head, in
// place, and returns how many bytes b has left. Once accepted, nothing on the connection
// would be seen any more; declined, it goes on with HTTP/1.1 (RFC 9110, 7.8). Envoy does
// the same. Other upgrades are left alone.
func declineHTTP2(b []byte, head int) int {
	to, at := 0, 0
	for at < head {
		end := at
		for b[end] != '\n' {
			end++
		}
		end++
		line := b[at : end-2]
		name, value, ok := cutField(line)
		switch {
		case at == 0, !ok: // the request line, or the empty one
			to += copy(b[to:], b[at:end])
		case sameFold(name, "upgrade"), sameFold(name, "http2-settings"):
		case sameFold(name, "connection"):
			to += copyOptions(b[to:], name, value)
		default:
			to += copy(b[to:], b[at:end])
		}
		at = end
	}
	return to + copy(b[to:], b[at:])
}

// copyOptions writes a Connection field without what belongs to the upgrade, or
// nothing if nothing is left of it. What it reads may overlap what it writes, which never
// gets ahead.
func copyOptions(dst, name, value []byte) int {
	n := copy(dst, name)
	n += copy(dst[n:], ":")
	kept := false
	for len(value) > 0 {
		end := 0
		for end < len(value) && value[end] != ',' {
			end++
		}
		option := trimBlanks(value[:end])
		value = value[min(end+1, len(value)):]
		if len(option) == 0 || sameFold(option, "upgrade") || sameFold(option, "http2-settings") {
			continue
		}
		if kept {
			n += copy(dst[n:], ",")
		}
		n += copy(dst[n:], option)
		kept = true
	}
	if !kept {
		return 0
	}
	return n + copy(dst[n:], "\r\n")
}
