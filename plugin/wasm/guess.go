package wasm

// versionGuess guesses what version the host gives to a value that this VM sets.
// The host does not tell, and to read the value back costs more than the rest of
// a step. Envoy numbers all that is set in shared data with one counter
// (proxy-wasm-cpp-host's SharedData::nextCas), so that the next number is known as long as
// no other worker writes.
//
// A wrong guess costs one failed swap and never lets a stale value through: the
// guess is the least number that the host can have given, so that the true one is
// the guess or larger, and numbers only grow. A swap with the guess therefore succeeds only
// if the guess was right and nobody has written since.
type versionGuess struct {
	next uint32 // the least number that the host gives next
	// After wrong guesses some steps go by without one: other workers are writing.
	pause, pauses int
}

// maxGuessPause bounds the steps without a guess.
const maxGuessPause = 64

// saw takes note of a version that the host has given.
func (g *versionGuess) saw(version uint32) {
	if version != absentCell {
		g.next = max(g.next, version+1)
	}
}

// wrote returns the guess for a value that has just been set.
func (g *versionGuess) wrote() uint32 {
	if g.next == 0 || g.next == absentCell {
		g.next++ // the host never gives 0; the other means absence
	}
	v := g.next
	g.next++
	return v
}

// worthwhile reports whether to try the guess.
func (g *versionGuess) worthwhile() bool {
	if g.pause > 0 {
		g.pause--
		return false
	}
	g.pauses = max(0, g.pauses-1)
	return true
}

// failed takes note of a wrong guess.
func (g *versionGuess) failed() {
	g.pauses = min(maxGuessPause, 2*g.pauses+2)
	g.pause = g.pauses / 2
}
