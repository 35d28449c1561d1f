package expr

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// Answer gives an answer the form that expressions see: a map of step, status,
// headers (names in lower case), body, json (null where the body is none), error,
// duration and exit_code. body is the whole body.
func Answer(a *campaignv1.Answer, body []byte) map[string]any {
	headers := make(map[string]any, len(a.GetHeaders()))
	for name, value := range a.GetHeaders() {
		headers[strings.ToLower(name)] = value
	}
	doc, ok := DecodeJSON(body)
	if !ok {
		doc = nil
	}
	return map[string]any{
		"step":      a.GetStep(),
		"status":    int64(a.GetStatus()),
		"headers":   headers,
		"body":      strings.ToValidUTF8(string(body), "\uFFFD"),
		"json":      doc,
		"error":     a.GetError(),
		"duration":  duration(a.GetDuration()),
		"exit_code": int64(a.GetExitCode()),
	}
}

func duration(d *durationpb.Duration) time.Duration { return d.AsDuration() }

// DecodeJSON decodes exactly one JSON document into nil, bool, float64, string,
// []any and map[string]any, and says whether b was one. Whole numbers beyond 2^53,
// which a float64 would change, become int64 or uint64.
func DecodeJSON(b []byte) (any, bool) {
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	var doc any
	if err := decoder.Decode(&doc); err != nil {
		return nil, false
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, false
	}
	return numbers(doc), true
}

func numbers(doc any) any {
	switch doc := doc.(type) {
	case json.Number:
		return number(doc)
	case []any:
		for i, element := range doc {
			doc[i] = numbers(element)
		}
	case map[string]any:
		for name, member := range doc {
			doc[name] = numbers(member)
		}
	}
	return doc
}

func number(n json.Number) any {
	const exact = 1 << 53
	f, err := n.Float64()
	if err != nil {
		return n.String() // beyond a float64's range
	}
	if math.Abs(f) >= exact {
		if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
			return i
		}
		if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
			return u
		}
	}
	return f
}

// Text gives a value of an expression as text that can stand in a request: strings
// as they are, numbers without exponent, null as the empty string, and all else as JSON.
func Text(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case time.Duration:
		return v.String(), true
	}
	return "", false
}
