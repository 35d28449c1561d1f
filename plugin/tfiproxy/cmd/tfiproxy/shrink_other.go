//go:build !linux

package main

// shrink needs Linux.
func shrink() {}
