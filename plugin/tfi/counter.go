package tfi

import "slices"

// Counter is the evidence: a grow-only counter, a CRDT. It maps (predicate
// index, emitting instance) to a count. Merging takes the larger of two counts
// entry by entry, and is thus idempotent, commutative and associative: evidence
// that arrives on several ways is never counted twice.
//
// Indexes name the activation's predicates and, after them, one entry a TFIC
// for how often it has fired. The zero value has no indexes.
type Counter struct {
	width int
	// tags ascend; the counts of tags[i] are cells[i*width:(i+1)*width].
	tags  []Tag
	cells []uint32
}

// NewCounter returns an empty counter of width indexes.
func NewCounter(width int) *Counter { return &Counter{width: width} }

// Width returns the number of indexes.
func (c *Counter) Width() int { return c.width }

// Tags returns the instances that c has counts of, ascending. They belong to c.
func (c *Counter) Tags() []Tag { return c.tags }

// Sum returns the number of occurrences of index i over all instances; 0 if
// there is no such index.
func (c *Counter) Sum(i int) uint64 {
	if i < 0 || i >= c.width {
		return 0
	}
	var n uint64
	for at := i; at < len(c.cells); at += c.width {
		n += uint64(c.cells[at])
	}
	return n
}

// Of returns the count of index i at one instance.
func (c *Counter) Of(t Tag, i int) uint32 {
	row, ok := c.find(t)
	if !ok || i < 0 || i >= c.width {
		return 0
	}
	return c.cells[row*c.width+i]
}

// Raise makes the count of index i at instance t at least n. An index out of
// range is ignored.
func (c *Counter) Raise(t Tag, i int, n uint32) {
	if i < 0 || i >= c.width {
		return
	}
	cell := &c.row(t)[i]
	*cell = max(*cell, n)
}

// increment counts one more occurrence at t, and stops at the largest number.
func (c *Counter) increment(t Tag, i int) {
	if i < 0 || i >= c.width {
		return
	}
	if cell := &c.row(t)[i]; *cell != ^uint32(0) {
		*cell++
	}
}

// Merge takes over all counts of o that are larger. Both must have the same width.
func (c *Counter) Merge(o *Counter) {
	if c.width != o.width {
		return
	}
	for i, t := range o.tags {
		row := c.row(t)
		for j, n := range o.cells[i*o.width : (i+1)*o.width] {
			row[j] = max(row[j], n)
		}
	}
}

// find returns the row of t, or where it belongs.
func (c *Counter) find(t Tag) (row int, ok bool) {
	for row < len(c.tags) && c.tags[row] < t { // they are few
		row++
	}
	return row, row < len(c.tags) && c.tags[row] == t
}

// at returns the counts of a row.
func (c *Counter) at(row int) []uint32 {
	return c.cells[row*c.width : (row+1)*c.width : (row+1)*c.width]
}

// row returns the counts of t, which it adds if there are none.
func (c *Counter) row(t Tag) []uint32 {
	i, ok := c.find(t)
	if !ok {
		c.insert(i, t)
	}
	return c.at(i)
}

// insert adds a row of zeros for t.
func (c *Counter) insert(row int, t Tag) {
	c.tags = slices.Insert(c.tags, row, t)
	n := len(c.cells)
	c.cells = slices.Grow(c.cells, c.width)[:n+c.width]
	copy(c.cells[(row+1)*c.width:], c.cells[row*c.width:n])
	clear(c.at(row))
}

// has reports whether t has a row.
func (c *Counter) has(t Tag) bool {
	_, ok := c.find(t)
	return ok
}

// reset empties c and keeps its buffers.
func (c *Counter) reset(width int) {
	c.width = width
	c.tags = c.tags[:0]
	c.cells = c.cells[:0]
}
