package tfi

// HasEdges reports whether a rule of p may take a request without trace headers
// into a trial, so that a gate must not pass over those.
func (p *Policy) HasEdges() bool {
	for i := range p.edges {
		if p.edges[i].act != nil {
			return true
		}
	}
	return false
}
