package importer

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// Curl reads a curl command line, as people type it or browsers copy it.
// readFile gives the content of files that it names (`-d @cart.json`); nil
// refuses them.
// Errors: ErrInput, with the option or the character.
func Curl(line string, readFile func(name string) ([]byte, error)) (*Imported, error) {
	words, err := shellWords(line)
	if err != nil {
		return nil, err
	}
	if len(words) > 0 && words[0] == "$" { // a copied prompt
		words = words[1:]
	}
	if len(words) == 0 || strings.TrimSuffix(words[0][strings.LastIndexByte(words[0], '/')+1:], ".exe") != "curl" {
		return nil, fmt.Errorf("%w: the command must begin with curl", ErrInput)
	}
	c := curl{imported: &Imported{Request: &campaignv1.HttpRequest{}}, readFile: readFile}
	if err := c.options(words[1:]); err != nil {
		return nil, err
	}
	return c.finish()
}

type curl struct {
	imported *Imported
	readFile func(string) ([]byte, error)
	method   string
	urls     []string
	data     []string
	hasData  bool
	json     bool
	get      bool
	head     bool
	headers  [][2]string
}

// argument says what an option of curl does with its argument.
type argument func(c *curl, value string) error

// Options with an argument, by their long name; short names map to long ones.
var (
	withArgument = map[string]argument{
		"request":        func(c *curl, v string) error { c.method = v; return nil },
		"header":         (*curl).header,
		"data":           func(c *curl, v string) error { return c.addData(v, true, true) },
		"data-ascii":     func(c *curl, v string) error { return c.addData(v, true, true) },
		"data-binary":    func(c *curl, v string) error { return c.addData(v, true, false) },
		"data-raw":       func(c *curl, v string) error { return c.addData(v, false, false) },
		"data-urlencode": (*curl).encoded,
		"json":           func(c *curl, v string) error { c.json = true; return c.addData(v, true, false) },
		"user":           (*curl).user,
		"cookie":         (*curl).cookie,
		"user-agent":     func(c *curl, v string) error { c.set("User-Agent", v); return nil },
		"referer":        func(c *curl, v string) error { c.set("Referer", v); return nil },
		"oauth2-bearer":  func(c *curl, v string) error { c.set("Authorization", "Bearer "+v); return nil },
		"url":            func(c *curl, v string) error { c.urls = append(c.urls, v); return nil },
		"max-time":       (*curl).maxTime,
	}
	// These say how curl works or what it prints, not what it sends.
	ignoredWithArgument = set("output", "write-out", "connect-timeout", "retry", "retry-delay", "retry-max-time", "cookie-jar", "dump-header",
		"limit-rate", "max-redirs", "stderr", "trace", "trace-ascii", "speed-time", "speed-limit", "cacert", "capath", "ciphers", "tls-max", "keepalive-time")
	ignored = set("silent", "show-error", "verbose", "include", "compressed", "fail", "fail-with-body", "globoff", "no-buffer", "progress-bar",
		"http1.1", "http1.0", "remote-name", "no-keepalive", "ipv4", "ipv6", "location-trusted", "tlsv1.2", "tlsv1.3", "path-as-is", "no-progress-meter", "styled-output")
	refused = map[string]string{
		"form": "multipart forms are not supported: put the body in by --data-binary", "form-string": "multipart forms are not supported: put the body in by --data-binary",
		"upload-file": "put the file's content in by --data-binary", "config": "put the options on the command line",
		"proxy": "campaigns reach sidecars directly: leave it out", "cert": "client certificates are not supported",
		"key": "client certificates are not supported", "unix-socket": "campaigns use TCP", "next": "only one request can be imported",
		"http2-prior-knowledge": "campaigns send HTTP/1.1", "digest": "only Basic authentication is supported", "ntlm": "only Basic authentication is supported",
		"negotiate": "only Basic authentication is supported", "resolve": "put the address into the URL", "connect-to": "put the address into the URL",
	}
	short = map[byte]string{
		'X': "request", 'H': "header", 'd': "data", 'u': "user", 'b': "cookie", 'A': "user-agent", 'e': "referer", 'm': "max-time", 'F': "form",
		'T': "upload-file", 'K': "config", 'x': "proxy", 'E': "cert", 'o': "output", 'w': "write-out", 'c': "cookie-jar", 'D': "dump-header",
		's': "silent", 'S': "show-error", 'v': "verbose", 'i': "include", 'f': "fail", 'g': "globoff", 'N': "no-buffer", '#': "progress-bar",
		'O': "remote-name", '4': "ipv4", '6': "ipv6", 'G': "get", 'I': "head", 'k': "insecure", 'L': "location", '0': "http1.0", ':': "next",
		'y': "speed-time", 'Y': "speed-limit",
	}
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func (c *curl) options(words []string) error {
	for i := 0; i < len(words); i++ {
		w := words[i]
		next := func() (string, error) {
			if i+1 >= len(words) {
				return "", fmt.Errorf("%w: %s needs a value", ErrInput, w)
			}
			i++
			return words[i], nil
		}
		switch {
		case w == "--":
			c.urls = append(c.urls, words[i+1:]...)
			return nil
		case strings.HasPrefix(w, "--"):
			name, value, has := strings.Cut(w[2:], "=")
			if err := c.option("--"+name, name, func() (string, error) {
				if has {
					return value, nil
				}
				return next()
			}); err != nil {
				return err
			}
		case len(w) > 1 && w[0] == '-':
			if err := c.shorts(w[1:], next); err != nil {
				return err
			}
		default:
			c.urls = append(c.urls, w)
		}
	}
	return nil
}

// shorts reads letters behind one hyphen: -sSLXPOST.
func (c *curl) shorts(letters string, next func() (string, error)) error {
	for i := 0; i < len(letters); i++ {
		shown := "-" + string(letters[i])
		name, ok := short[letters[i]]
		if !ok {
			return fmt.Errorf("%w: option %q is not known: leave it out if it does not change the request", ErrInput, shown)
		}
		rest := letters[i+1:]
		taken := false
		err := c.option(shown, name, func() (string, error) {
			taken = true
			if rest != "" {
				return rest, nil
			}
			return next()
		})
		if err != nil || taken {
			return err
		}
	}
	return nil
}

func (c *curl) option(shown, name string, value func() (string, error)) error {
	if why, ok := refused[name]; ok {
		return fmt.Errorf("%w: %s: %s", ErrInput, shown, why)
	}
	if apply, ok := withArgument[name]; ok {
		v, err := value()
		if err != nil {
			return err
		}
		return apply(c, v)
	}
	if ignoredWithArgument[name] {
		_, err := value()
		return err
	}
	switch {
	case ignored[name]:
	case name == "get":
		c.get = true
	case name == "head":
		c.head = true
	case name == "insecure":
		c.imported.note("-k is not taken over: certificates are checked")
	case name == "location":
		c.imported.note("-L is not taken over: a redirect is an answer like any other")
	case name == "http2":
		c.imported.note("--http2 is not taken over: campaigns send HTTP/1.1")
	case name == "basic":
	default:
		return fmt.Errorf("%w: option %s is not known: leave it out if it does not change the request", ErrInput, shown)
	}
	return nil
}

func (c *curl) set(name, value string) { c.headers = append(c.headers, [2]string{name, value}) }

func (c *curl) header(v string) error {
	if strings.HasPrefix(v, "@") {
		return fmt.Errorf("%w: -H %s: headers from a file are not supported", ErrInput, v)
	}
	name, value, ok := strings.Cut(v, ":")
	if !ok {
		// `X-Empty;` sends the header without a value; `X-Gone` alone removes it.
		if empty, semicolon := strings.CutSuffix(v, ";"); semicolon {
			c.set(empty, "")
			return nil
		}
		return fmt.Errorf("%w: -H %q is no header: want \"Name: value\"", ErrInput, v)
	}
	if strings.TrimSpace(value) == "" {
		return nil // curl leaves such a header out
	}
	c.set(strings.TrimSpace(name), strings.TrimSpace(value))
	return nil
}

func (c *curl) addData(v string, files, stripNewlines bool) error {
	if name, ok := strings.CutPrefix(v, "@"); ok && files {
		b, err := c.file(name)
		if err != nil {
			return err
		}
		v = string(b)
		if stripNewlines {
			v = strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace(v)
		}
	}
	c.data, c.hasData = append(c.data, v), true
	return nil
}

// encoded is --data-urlencode: content, =content, name=content, @file, name@file.
func (c *curl) encoded(v string) error {
	name, content, equals := strings.Cut(v, "=")
	if !equals {
		var at bool
		var file string
		name, file, at = strings.Cut(v, "@")
		if at {
			b, err := c.file(file)
			if err != nil {
				return err
			}
			content = string(b)
		} else {
			name, content = "", v
		}
	}
	text := strings.ReplaceAll(url.QueryEscape(content), "+", "%20")
	if name != "" {
		text = name + "=" + text
	}
	c.data, c.hasData = append(c.data, text), true
	return nil
}

func (c *curl) file(name string) ([]byte, error) {
	if c.readFile == nil || name == "-" {
		return nil, fmt.Errorf("%w: the body comes from %q: put it on the command line", ErrInput, name)
	}
	b, err := c.readFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: the body's file: %w", ErrInput, err)
	}
	return b, nil
}

func (c *curl) user(v string) error {
	if !strings.Contains(v, ":") {
		v += ":"
	}
	c.set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(v)))
	return nil
}

func (c *curl) cookie(v string) error {
	if !strings.Contains(v, "=") {
		return fmt.Errorf("%w: -b %s: cookies from a file are not supported: give them as name=value", ErrInput, v)
	}
	c.set("Cookie", v)
	return nil
}

func (c *curl) maxTime(v string) error {
	s, err := strconv.ParseFloat(v, 64)
	if err != nil || s <= 0 || s > 3600 {
		return fmt.Errorf("%w: --max-time %s: want seconds from 0 to 3600", ErrInput, v)
	}
	c.imported.Request.Timeout = durationpb.New(time.Duration(s * float64(time.Second)))
	return nil
}

func (c *curl) finish() (*Imported, error) {
	r := c.imported.Request
	if len(c.urls) != 1 {
		return nil, fmt.Errorf("%w: want one URL, got %d", ErrInput, len(c.urls))
	}
	r.Url = c.urls[0]
	if !strings.Contains(r.GetUrl(), "://") {
		r.Url = "http://" + r.GetUrl()
	}
	u, err := url.Parse(r.GetUrl())
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("%w: %q is no http URL", ErrInput, c.urls[0])
	}
	if u.User != nil {
		password, _ := u.User.Password()
		if err := c.user(u.User.Username() + ":" + password); err != nil {
			return nil, err
		}
		u.User = nil
		r.Url = u.String()
	}
	body := strings.Join(c.data, "&")
	if c.json {
		body = strings.Join(c.data, "")
	}
	switch {
	case c.get && c.hasData:
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += body
		r.Url = u.String()
	case c.hasData:
		r.Body = body
		r.Method = "POST"
	case c.head:
		r.Method = "HEAD"
	}
	if c.method != "" {
		r.Method = c.method
	}
	for _, h := range c.headers {
		c.imported.setHeader(h[0], h[1])
	}
	if c.json {
		c.defaultHeader("Content-Type", "application/json")
		c.defaultHeader("Accept", "application/json")
	} else if r.GetBody() != "" {
		c.defaultHeader("Content-Type", "application/x-www-form-urlencoded")
	}
	c.imported.finish()
	c.imported.oneService()
	return c.imported, nil
}

func (c *curl) defaultHeader(name, value string) {
	for existing := range c.imported.Request.GetHeaders() {
		if strings.EqualFold(existing, name) {
			return
		}
	}
	c.imported.setHeader(name, value)
}
