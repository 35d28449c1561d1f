package trace

// Repeats returns the calls that make call i again, by index and in order: later ones of the
// same caller to the same op, with the same path, out of the same span of the application. An
// HTTP client makes them by itself, where a connection breaks that it had used before.
//
// An application that passes one trace header on to all its calls makes them all out of one
// span: equal ones among those look like repeats too.
func (t *Trial) Repeats(i int) []int {
	c := &t.Calls[i]
	if c.Parent == "" {
		return nil
	}
	var out []int
	for j := i + 1; j < len(t.Calls); j++ { // calls are in the order of their first events
		d := &t.Calls[j]
		if d.Caller == c.Caller && d.Callee == c.Callee && d.API == c.API && d.Path == c.Path && d.Parent == c.Parent {
			out = append(out, j)
		}
	}
	return out
}
