package trace

// Past tells which events lie in whose causal past, whatever clocks said.
type Past struct {
	instance []int    // of event
	rank     []uint32 // of event at its instance, from 1
	clock    []uint32 // event major: how many events of each instance are in its past
	width    int
}

// Past computes the causal past of every event, along the order of each sidecar
// and the deliveries that were observed.
func (t *Trial) Past() *Past {
	index := map[string]int{}
	for i := range t.Events {
		if _, ok := index[t.Events[i].Instance]; !ok {
			index[t.Events[i].Instance] = len(index)
		}
	}
	p := &Past{
		instance: make([]int, len(t.Events)), rank: make([]uint32, len(t.Events)),
		clock: make([]uint32, len(t.Events)*len(index)), width: len(index),
	}
	last := make([]int, len(index))
	for i := range last {
		last[i] = None
	}
	for i := range t.Events {
		in := index[t.Events[i].Instance]
		row := p.row(i)
		for _, from := range [...]int{last[in], t.Events[i].Cause} {
			if from == None {
				continue
			}
			for j, n := range p.row(from) {
				row[j] = max(row[j], n)
			}
		}
		row[in]++
		p.instance[i], p.rank[i], last[in] = in, row[in], i
	}
	return p
}

func (p *Past) row(i int) []uint32 { return p.clock[i*p.width : (i+1)*p.width] }

// Includes reports whether event j is event i or happened before it.
func (p *Past) Includes(i, j int) bool {
	return p.row(i)[p.instance[j]] >= p.rank[j]
}
