package oracle

import (
	"bytes"
	"mime"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/workload"
	"github.com/sequencefi/sequencefi/controlplane/workload/expr"
)

// body is what the clean bodies of one step have in common: the shape of their
// JSON, or else media type and emptiness.
type body struct {
	// class of the answers; probes only.
	class                  string
	seen, documents, empty int
	shape                  shape
	media                  string
	mediaVaries            bool
}

func (b *body) learn(a workload.Answer) {
	media := mediaType(a)
	if b.seen > 0 && media != b.media {
		b.mediaVaries = true
	}
	b.media = media
	b.seen++
	if len(bytes.TrimSpace(a.Whole)) == 0 {
		b.empty++
		return
	}
	if doc, ok := expr.DecodeJSON(a.Whole); ok {
		b.documents++
		b.shape.learn(doc)
	}
}

// compare returns the differences to clean bodies, and for the first of them a
// detail for people.
func (b *body) compare(a workload.Answer, ignore []path, values bool) ([]string, string) {
	if b.seen == 0 {
		return nil, ""
	}
	c := comparison{ignore: ignore, values: values}
	root := path{}
	if root.matches(ignore) {
		return nil, ""
	}
	empty := len(bytes.TrimSpace(a.Whole)) == 0
	doc, isJSON := expr.DecodeJSON(a.Whole)
	switch {
	case empty && b.empty == 0:
		c.report(root, b.describe(), "an empty body", "")
	case !empty && b.empty == b.seen:
		c.report(root, "an empty body", "a body", "")
	case b.documents+b.empty < b.seen || b.documents == 0:
		// Not JSON, or not always: nothing to look into.
	case !empty && !isJSON:
		c.report(root, b.shape.describe(), "not JSON", "")
	case isJSON:
		c.compare(&b.shape, doc, root)
	}
	if media := mediaType(a); !b.mediaVaries && media != b.media && !empty && len(c.lines) == 0 {
		c.report(root, orNone(b.media), orNone(media), "")
	}
	return c.lines, c.first
}

func (b *body) describe() string {
	if b.documents > 0 && b.documents+b.empty == b.seen {
		return b.shape.describe()
	}
	return orNone(b.media)
}

func orNone(media string) string {
	if media == "" {
		return "a body without content type"
	}
	return media
}

func mediaType(a workload.Answer) string {
	raw := a.GetHeaders()["content-type"]
	media, _, err := mime.ParseMediaType(raw)
	if err != nil {
		return strings.ToLower(strings.TrimSpace(raw))
	}
	return media
}
