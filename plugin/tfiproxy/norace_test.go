//go:build !race

package tfiproxy

const raceEnabled = false
