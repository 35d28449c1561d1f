package tfi

import (
	"errors"
	"fmt"
	"strings"
)

// ErrPolicy says that a policy cannot be used.
var ErrPolicy = errors.New("bad policy")

// Problem is one thing that is wrong with a policy.
type Problem struct {
	// Path of the field, as `activations[0].tfics[2].target.api`.
	Path string
	// Want says what would be right.
	Want string
}

// PolicyError lists all that is wrong with a policy. It wraps ErrPolicy.
type PolicyError struct {
	Problems []Problem
}

// Error lists the problems, one after the other.
func (e *PolicyError) Error() string {
	var b strings.Builder
	b.WriteString(ErrPolicy.Error())
	for i, p := range e.Problems {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s: %s", sep, p.Path, p.Want)
	}
	return b.String()
}

// Unwrap returns ErrPolicy.
func (e *PolicyError) Unwrap() error { return ErrPolicy }
