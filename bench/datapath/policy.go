package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// Who the measured sidecar is, and whom it calls.
const (
	service = "shop"
	called  = "cart"
	// The clusters of the callee, and that of the collector.
	clusterHTTP      = "cart"
	clusterGRPC      = "cart-grpc"
	clusterCollector = "collector"
)

// newKeys takes keys that nobody has used.
func newKeys() keys {
	var k keys
	_, _ = rand.Read(k.recording[:]) // never fails
	_, _ = rand.Read(k.trial[:])     // never fails
	return k
}

// policy has everything on for the trial's key: guards over both events of a
// call that are judged each time and never hold, evidence and reports. The key of the
// recording has evidence and reports only.
func policy(k keys, version string) *tfiv1.Policy {
	var tfics []*tfiv1.Tfic
	for i, api := range []string{"GET /{id}", "cart.Cart/Add"} {
		tfics = append(tfics, &tfiv1.Tfic{
			Id:     "t" + strconv.Itoa(i),
			Target: &tfiv1.StaticConfiguration{Caller: service, Callee: called, Api: api, Phase: tfiv1.Phase_PHASE_RESP},
			Guard:  never(api),
			Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
		})
	}
	activation := func(key tfi.Key, tfics []*tfiv1.Tfic) *tfiv1.Activation {
		return &tfiv1.Activation{Key: key[:], Tfics: tfics, Remaining: durationpb.New(time.Hour), Services: []string{service, called}}
	}
	return &tfiv1.Policy{
		Service: service, Version: version,
		Peers:       []*tfiv1.Peer{{Service: called, Clusters: []string{clusterHTTP, clusterGRPC}}},
		Reporting:   &tfiv1.Reporting{Cluster: clusterCollector},
		Activations: []*tfiv1.Activation{activation(k.recording, nil), activation(k.trial, tfics)},
	}
}

// never is a guard that waits for more answers than there are.
func never(api string) *tfiv1.Guard {
	all := &tfiv1.AllOf{}
	for _, phase := range []tfiv1.Phase{tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP} {
		all.Guards = append(all.Guards, &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Count: 1 << 30, Event: &tfiv1.EventPredicate{
			Op: &tfiv1.Op{Observer: service, Role: tfiv1.Role_ROLE_CLIENT, Peer: called, Api: api, Phase: phase},
		}}}})
	}
	return &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: all}}}}
}

// newRound gives every sidecar the keys of a new round.
func (b *bed) newRound(ctx context.Context) error {
	b.keys = newKeys()
	var errs []error
	for _, p := range b.proxy {
		if p.refresh != nil {
			errs = append(errs, p.refresh(ctx))
		}
	}
	return errors.Join(errs...)
}

// writePolicy replaces TFIProxy's policy file in one step.
func (b *bed) writePolicy(name, version string) (string, error) {
	p := policy(b.keys, version)
	if err := valid.Error(valid.Policy(p)); err != nil {
		return "", err
	}
	raw, err := proto.Marshal(p)
	if err != nil {
		return "", err
	}
	part, err := b.write(name+".part", string(raw))
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.work, name)
	return file, os.Rename(part, file)
}
