package main

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
)

// The kinds of files that commands take, as people call them.
const (
	kindCampaign = "campaign file"
	kindReplay   = "replay file"
	kindTopology = "topology file"
	kindReport   = "campaign's report"
)

// commandsFor are the commands that take a file of a kind.
var commandsFor = map[string]string{
	kindCampaign: "sequencefi run, check and plan take it",
	kindReplay:   "sequencefi replay takes it",
	kindTopology: "sequencefi run --topology and serve --topology take it",
	kindReport:   "sequencefi report takes it",
}

// maxKindBytes bounds what is read of a file to tell its kind.
const maxKindBytes = 4 << 20

// kindOf tells a file's kind by its fields; empty: it is none of those.
func kindOf(path string) string {
	b, err := bounded.File(path, maxKindBytes)
	if err != nil {
		return ""
	}
	var fields map[string]any
	if yaml.Unmarshal(b, &fields) != nil {
		return ""
	}
	has := func(name string) bool { _, ok := fields[name]; return ok }
	switch {
	case has("spec") && (has("tfics") || has("signature")):
		return kindReplay
	case has("spec"):
		return kindReport
	case has("workload"):
		return kindCampaign
	case has("services"):
		return kindTopology
	}
	return ""
}

// explainKind replaces the error of a file that is good for another command: a list of
// unknown fields would not tell what is wrong.
func explainKind(path, want string, err error) error {
	if err == nil {
		return nil
	}
	if kind := kindOf(path); kind != "" && kind != want {
		return &usageError{err: fmt.Errorf("%s is a %s, not a %s: %s", path, kind, want, commandsFor[kind])}
	}
	return err
}
