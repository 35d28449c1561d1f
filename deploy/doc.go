// Package deploy is the folder of what it takes to run SequenceFI's sidecars
// somewhere: package process starts and ends programs, envoy and jaeger stock ones,
// and standalone has example files.
//
// It is not the control plane: nothing here knows of faults or campaigns, so
// every other folder may use it.
package deploy
