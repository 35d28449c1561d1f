package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

const (
	// findingsDir is where replay files are, in the report's directory.
	findingsDir = "findings"
	// interruptedDir is where a run that was stopped writes if the report's directory has
	// what a complete one found.
	interruptedDir = "interrupted"
)

// replayFiles returns the paths of the replay files in the report's directory.
func replayFiles(out string) ([]string, error) {
	return filepath.Glob(filepath.Join(out, findingsDir, "[FD]*.yaml"))
}

// hasResults says whether a run that made trials has written into the directory.
func hasResults(out string) bool {
	if files, err := replayFiles(out); err == nil && len(files) > 0 {
		return true
	}
	return hasReport(out, func(r *campaignv1.CampaignReport) bool { return report.Summarise(r).Trials > 0 })
}

// hasComplete says whether a run that came to its end has written into the directory.
func hasComplete(out string) bool {
	return hasReport(out, func(r *campaignv1.CampaignReport) bool {
		return r.GetInterrupted() == "" && report.Summarise(r).Trials > 0
	})
}

// hasReport says whether the directory has a report that fits.
func hasReport(out string, fits func(*campaignv1.CampaignReport) bool) bool {
	b, err := bounded.File(filepath.Join(out, report.JSONFile), maxTracesFile)
	if err != nil {
		return errors.Is(err, bounded.ErrTooLarge) // nothing but many trials makes it as large
	}
	r, err := report.ReadJSON(b)
	return err == nil && fits(r)
}

// writeFindings writes a replay file for each finding and each degraded outcome,
// and notes its path in the report, unless the
// system is thrown away and the file alone replays nothing. Files of an earlier campaign go when all are written.
func writeFindings(r *campaignv1.CampaignReport, t *topology.Topology, out string, throwaway bool) error {
	dir := filepath.Join(out, findingsDir)
	old, err := replayFiles(out)
	if err != nil {
		return err
	}
	for _, f := range append(r.GetFindings()[:len(r.GetFindings()):len(r.GetFindings())], r.GetDegraded()...) {
		if len(f.GetWitnesses()) == 0 {
			continue
		}
		replay, err := campaign.NewReplay(r, t, f)
		if err != nil {
			return err
		}
		b, err := campaign.MarshalReplay(replay)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("replay files: %w", err)
		}
		// Ids are the campaign's own, but nothing else may become a path.
		path := filepath.Join(dir, strings.Map(fileRune, f.GetId())+".yaml")
		if err := report.ReplaceFile(path, b); err != nil {
			return fmt.Errorf("replay files: %w", err)
		}
		if !throwaway {
			f.ReplayFile = path
		}
		old = slices.DeleteFunc(old, func(o string) bool { return o == path })
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func fileRune(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
		return r
	}
	return '_'
}
