package tfiproxy

// declineHTTP2 takes the offer to go on with HTTP/2 (`Upgrade: h2c`, which RFC 9113
// has withdrawn, and with which Java's client begins) out of a scanned request head, in
// place, and returns how many bytes b has left. Once accepted, nothing on the connection
// would be seen any more; declined, it goes on with HTTP/1.1 (RFC 9110, 7.8). Envoy does
// the same. Other upgrades are left alone, also beside it.
func declineHTTP2(b []byte, head int) int {
	others := offersOthers(b[:head])
	return editHead(b, head, func(dst, line, name, value []byte) int {
		switch {
		case sameFold(name, "upgrade"):
			return copyOptions(dst, name, value, func(option []byte) bool { return !sameFold(option, "h2c") })
		case sameFold(name, "http2-settings"):
			return 0
		case sameFold(name, "connection"):
			return copyOptions(dst, name, value, func(option []byte) bool {
				return !sameFold(option, "http2-settings") && (others || !sameFold(option, "upgrade"))
			})
		}
		return copy(dst, line)
	})
}

// offersOthers tells whether a head offers to go on with anything but HTTP/2.
func offersOthers(head []byte) (others bool) {
	var v headView
	v.index(head)
	for _, f := range v.fields {
		if !sameFold(head[f.start:f.name], "upgrade") {
			continue
		}
		var scratch [1]byte
		_ = copyOptions(scratch[:0], nil, head[f.value:f.valueEnds], func(option []byte) bool {
			others = others || !sameFold(option, "h2c")
			return false
		})
	}
	return others
}

// dropField takes the fields of a name out of a scanned head, in place, and returns how
// many bytes b has left.
func dropField(b []byte, head int, drop string) int {
	return editHead(b, head, func(dst, line, name, _ []byte) int {
		if sameFold(name, drop) {
			return 0
		}
		return copy(dst, line)
	})
}

// editHead writes a scanned head anew, in place, line by line by copyLine, which must not
// write more than the line. It returns how many bytes b has left.
func editHead(b []byte, head int, copyLine func(dst, line, name, value []byte) int) int {
	to, at := 0, 0
	for at < head {
		end := at
		for b[end] != '\n' {
			end++
		}
		end++
		line := b[at:end]
		if name, value, ok := cutField(line[:len(line)-2]); at > 0 && ok {
			to += copyLine(b[to:], line, name, value)
		} else { // the request line, or the empty one
			to += copy(b[to:], line)
		}
		at = end
	}
	return to + copy(b[to:], b[at:])
}

// copyOptions writes a list field with those options that are kept, or nothing if
// nothing is left of it. What it reads may overlap what it writes, which never gets ahead.
func copyOptions(dst, name, value []byte, keep func(option []byte) bool) int {
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
		if len(option) == 0 || !keep(option) {
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
