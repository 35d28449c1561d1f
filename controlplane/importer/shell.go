package importer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxCommand bounds a command line.
const maxCommand = 1 << 20

// shellWords splits a command line as a POSIX shell does, with bash's $'…'
// (browsers write it). Expansions are refused: their values are not known here.
func shellWords(line string) ([]string, error) {
	if len(line) > maxCommand {
		return nil, fmt.Errorf("%w: the command is longer than %d bytes", ErrInput, maxCommand)
	}
	s := scanner{text: line}
	for s.pos < len(s.text) {
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	s.end()
	return s.words, nil
}

type scanner struct {
	text  string
	pos   int
	word  strings.Builder
	open  bool // a word has begun, be it empty
	words []string
}

func (s *scanner) end() {
	if s.open {
		s.words = append(s.words, s.word.String())
		s.word.Reset()
		s.open = false
	}
}

func (s *scanner) refuse(format string, args ...any) error {
	return fmt.Errorf("%w: at character %d: %s", ErrInput, utf8.RuneCountInString(s.text[:min(s.pos, len(s.text))])+1, fmt.Sprintf(format, args...))
}

func (s *scanner) step() error {
	switch c := s.text[s.pos]; c {
	case ' ', '\t', '\n', '\r':
		s.end()
		s.pos++
	case '\'':
		return s.single()
	case '"':
		return s.double()
	case '\\':
		s.escape()
	case '$':
		if strings.HasPrefix(s.text[s.pos:], "$'") {
			return s.ansi()
		}
		if s.expands() {
			return s.refuse("a shell variable or command stands here: put in its value")
		}
		s.add(c)
	case '`':
		return s.refuse("a shell command stands here: put in its output")
	case '|', ';', '&', '<', '>', '(', ')':
		return s.refuse("%q does not belong to a single curl command: quote the URL, and leave the rest out", string(c))
	case '#':
		if !s.open {
			return s.refuse("a comment begins here: leave it out")
		}
		s.add(c)
	default:
		s.add(c)
	}
	return nil
}

func (s *scanner) add(c byte) {
	s.word.WriteByte(c)
	s.open = true
	s.pos++
}

// expands reports whether a shell would replace the $ here.
func (s *scanner) expands() bool {
	if s.pos+1 >= len(s.text) {
		return false
	}
	c := s.text[s.pos+1]
	return c == '{' || c == '(' || c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}

// escape is a backslash outside quotes; before a line break it joins lines.
func (s *scanner) escape() {
	s.pos++
	if strings.HasPrefix(s.text[s.pos:], "\r\n") {
		s.pos += 2
		return
	}
	if s.pos >= len(s.text) {
		return // a line that ends in a backslash was cut off there
	}
	if s.text[s.pos] == '\n' {
		s.pos++
		return
	}
	s.add(s.text[s.pos])
}

func (s *scanner) single() error {
	s.open = true
	end := strings.IndexByte(s.text[s.pos+1:], '\'')
	if end < 0 {
		return s.refuse("the quote ' is not closed")
	}
	s.word.WriteString(s.text[s.pos+1 : s.pos+1+end])
	s.pos += end + 2
	return nil
}

func (s *scanner) double() error {
	s.open = true
	start := s.pos
	s.pos++
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; c {
		case '"':
			s.pos++
			return nil
		case '\\':
			s.pos++
			if s.pos >= len(s.text) {
				continue
			}
			switch e := s.text[s.pos]; e {
			case '"', '\\', '$', '`':
				s.add(e)
			case '\n':
				s.pos++
			default:
				s.word.WriteByte('\\')
				s.add(e)
			}
		case '`':
			return s.refuse("a shell command stands here: put in its output")
		case '$':
			if s.expands() {
				return s.refuse("a shell variable or command stands here: put in its value, or use single quotes")
			}
			s.add(c)
		default:
			s.add(c)
		}
	}
	s.pos = start
	return s.refuse("the quote \" is not closed")
}

// ansi is bash's $'…' with C's escapes.
func (s *scanner) ansi() error {
	s.open = true
	start := s.pos
	s.pos += 2
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		if c == '\'' {
			s.pos++
			return nil
		}
		if c != '\\' {
			s.add(c)
			continue
		}
		s.pos++
		if s.pos >= len(s.text) {
			break
		}
		e := s.text[s.pos]
		if plain, ok := map[byte]byte{
			'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '\'': '\'', '"': '"', 'a': 7, 'b': 8, 'f': 12, 'v': 11, 'e': 27, '?': '?',
		}[e]; ok {
			s.add(plain)
			continue
		}
		switch {
		case e == 'x':
			s.hex(2, false)
		case e == 'u':
			s.hex(4, true)
		case e == 'U':
			s.hex(8, true)
		case '0' <= e && e <= '7':
			n := 0
			for n < 3 && s.pos+n < len(s.text) && '0' <= s.text[s.pos+n] && s.text[s.pos+n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s.text[s.pos:s.pos+n], 8, 16)
			s.word.WriteByte(byte(v))
			s.pos += n
		default:
			s.word.WriteByte('\\')
			s.add(e)
		}
	}
	s.pos = start
	return s.refuse("the quote $' is not closed")
}

// hex reads at most most digits behind the letter at pos.
func (s *scanner) hex(most int, isRune bool) {
	letter := s.text[s.pos]
	s.pos++
	n := 0
	for n < most && s.pos+n < len(s.text) && isHex(s.text[s.pos+n]) {
		n++
	}
	if n == 0 {
		s.word.WriteByte('\\')
		s.word.WriteByte(letter)
		return
	}
	v, _ := strconv.ParseUint(s.text[s.pos:s.pos+n], 16, 32)
	s.pos += n
	if isRune {
		s.word.WriteRune(rune(v))
		return
	}
	s.word.WriteByte(byte(v))
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}
