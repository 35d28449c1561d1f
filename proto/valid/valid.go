// Package valid says what is wrong with a message of SequenceFI's contracts.
//
// There is one pure function a message. Each returns every problem it can find,
// not only the first, with the path of the field as a YAML or JSON file spells
// it (`activations[2].tfics[0].target.enforceK`) and what would be right. The
// same functions stand at every entrance: campaign files, the command line, the
// solver's service, and what the control plane is about to send to a sidecar.
//
// It is not a schema: types and unknown fields are the decoders' business. A nil
// message is judged like an empty one. No function panics, whatever it is given.
package valid

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a message.
type Problem struct {
	// Path of the field from the judged message, in JSON spelling; empty for
	// the message itself.
	Path string
	// Want says what would be right, and what is there where that helps.
	Want string
}

// String returns `path: want`.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Want
	}
	return p.Path + ": " + p.Want
}

// ErrInvalid is wrapped by every error that [Error] makes.
var ErrInvalid = errors.New("invalid")

// InvalidError carries the problems of a message.
type InvalidError struct {
	Problems []Problem
}

// Error lists all problems, one a line when there are several.
func (e *InvalidError) Error() string {
	if len(e.Problems) == 1 {
		return "invalid: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "invalid: %d problems:", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// Unwrap returns [ErrInvalid].
func (e *InvalidError) Unwrap() error { return ErrInvalid }

var _ error = (*InvalidError)(nil)

// Error makes an error of problems, or nil if there are none.
func Error(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &InvalidError{Problems: problems}
}

// Under puts problems of a part under the part's own path. It changes its
// argument and returns it.
func Under(path string, problems []Problem) []Problem {
	for i := range problems {
		problems[i].Path = field(path, problems[i].Path)
	}
	return problems
}

// checker gathers problems.
type checker struct {
	problems []Problem
}

// want adds a problem.
func (c *checker) want(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Path: path, Want: fmt.Sprintf(format, args...)})
}

// field returns the path of a field below base.
func field(base, name string) string {
	switch {
	case base == "":
		return name
	case name == "" || name[0] == '[':
		return base + name
	}
	return base + "." + name
}

// item returns the path of an element of a list.
func item(base string, i int) string {
	return base + "[" + strconv.Itoa(i) + "]"
}

// entry returns the path of a value in a map.
func entry(base, key string) string {
	return base + "[" + strconv.Quote(cut(key, 64)) + "]"
}

// cut shortens hostile values, so that an error stays readable.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
