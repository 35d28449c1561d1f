//go:build race

package tfiproxy

const raceEnabled = true
