package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// har is the part of an HTTP archive (HAR 1.2) that a request needs.
type har struct {
	Log struct {
		Entries []struct {
			Request struct {
				Method  string      `json:"method"`
				URL     string      `json:"url"`
				Headers []nameValue `json:"headers"`
				Body    *struct {
					MIME string `json:"mimeType"`
					Text string `json:"text"`
				} `json:"postData"`
			} `json:"request"`
			Response struct {
				Status int `json:"status"`
			} `json:"response"`
		} `json:"entries"`
	} `json:"log"`
}

type nameValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// maxListed bounds the entries that an error lists.
const maxListed = 30

// HAR reads the request of an entry of an HTTP archive: the entry's number from
// 1, or 0 where there is only one whose URL contains match.
// Errors: ErrInput; where several entries fit, it lists them.
func HAR(b []byte, entry int, match string) (*Imported, error) {
	var archive har
	// Browsers write a byte order mark now and then.
	if err := json.Unmarshal(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), &archive); err != nil {
		return nil, fmt.Errorf("%w: not a HAR file: %w", ErrInput, plainJSON(err))
	}
	entries := archive.Log.Entries
	if len(entries) == 0 {
		return nil, fmt.Errorf("%w: the HAR file has no entries", ErrInput)
	}
	if entry < 0 || entry > len(entries) {
		return nil, fmt.Errorf("%w: there is no entry %d: the HAR file has %d", ErrInput, entry, len(entries))
	}
	if entry == 0 {
		var fits []int
		var list strings.Builder
		for i, e := range entries {
			if !strings.Contains(e.Request.URL, match) {
				continue
			}
			if fits = append(fits, i+1); len(fits) <= maxListed {
				fmt.Fprintf(&list, "\n  %d: %s %s (%d)", i+1, e.Request.Method, cut(e.Request.URL, 100), e.Response.Status)
			}
		}
		if len(fits) > maxListed {
			fmt.Fprintf(&list, "\n  and %d more", len(fits)-maxListed)
		}
		switch len(fits) {
		case 0:
			return nil, fmt.Errorf("%w: no entry's URL contains %q", ErrInput, match)
		case 1:
			entry = fits[0]
		default:
			return nil, fmt.Errorf("%w: choose one of these entries by its number:%s", ErrInput, list.String())
		}
	}
	request := entries[entry-1].Request
	if !strings.HasPrefix(request.URL, "http://") && !strings.HasPrefix(request.URL, "https://") {
		return nil, fmt.Errorf("%w: entry %d is no http request: %s", ErrInput, entry, cut(request.URL, 100))
	}
	out := &Imported{Request: &campaignv1.HttpRequest{Url: request.URL}}
	out.Request.Url, _, _ = strings.Cut(request.URL, "#")
	if request.Method != "GET" {
		out.Request.Method = request.Method
	}
	for _, h := range request.Headers {
		if browserHeader(h.Name) {
			continue
		}
		out.setHeader(h.Name, h.Value)
	}
	if request.Body != nil {
		if request.Body.Text == "" && strings.HasPrefix(request.Body.MIME, "multipart/") {
			return nil, fmt.Errorf("%w: entry %d is a multipart form, whose body is not in the HAR file", ErrInput, entry)
		}
		out.Request.Body = request.Body.Text
	}
	out.finish()
	out.oneService()
	return out, nil
}

// browserHeader reports whether a header says nothing but which browser it was.
func browserHeader(name string) bool {
	lower := strings.ToLower(name)
	switch lower {
	case "user-agent", "referer", "origin", "priority", "dnt", "cache-control", "pragma", "accept-language", "upgrade-insecure-requests", "if-none-match", "if-modified-since":
		return true
	}
	return strings.HasPrefix(lower, "sec-")
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
