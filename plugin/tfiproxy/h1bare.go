package tfiproxy

import (
	"bytes"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// The sidecars' evidence is in heads of requests and final answers. Elsewhere it is
// an application's that forwards what it got, or made up, and comes off all the same: of a
// trial's answer, and of any request, since its trailers may have outlived the trial.

// bareHead returns the head in c.out without its evidence if it is of a trial.
func (c *conn) bareHead(t *trial) []byte {
	head := c.out.data()[:c.resp.size]
	if t == nil || !c.resp.evidence {
		return head
	}
	t.head.index(head)
	t.out = append(t.head.appendWithout(t.out[:0], tfi.EvidenceHeader), "\r\n"...)
	return t.out
}

// keepTrailers keeps back the last chunk and the trailers of a chunked body's piece that
// was consumed last, and returns how much of the piece comes before them.
func (s *body) keepTrailers(kept *[]byte, piece []byte) int {
	if s.last < 0 {
		return len(piece)
	}
	if s.done && len(*kept) == 0 && len(piece)-s.last < len(tfi.EvidenceHeader) {
		return len(piece) // as a rule: no trailers, and all in one piece
	}
	*kept = append(*kept, piece[s.last:]...)
	return s.last
}

// bareTrailers takes the evidence out of what keepTrailers kept of a body that has come
// whole, in place.
func bareTrailers(b []byte) []byte {
	to, at := 0, 0
	for at < len(b) {
		end := at + bytes.IndexByte(b[at:], '\n') + 1 // it ends with one
		name, _, found := bytes.Cut(b[at:end], []byte(":"))
		// The last chunk's own line comes first.
		if at == 0 || !found || !sameFold(name, tfi.EvidenceHeader) {
			to += copy(b[to:], b[at:end])
		}
		at = end
	}
	return b[:to]
}

// sendTrailers sends what was kept of an answer that has come whole, without evidence.
func (c *conn) sendTrailers(t *trial, how fate) error {
	if t == nil || len(t.trailers) == 0 || how == fateDoomed {
		return nil
	}
	if err := c.down.write(bareTrailers(t.trailers)); err != nil {
		return errClientGone
	}
	return nil
}
