package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/report"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// quietTime is how often a log gets a line while nothing but trials happens.
const quietTime = 5 * time.Second

// slowLoad is how long loading may take before its lines say why.
const slowLoad = 8 * time.Second

// slowReason is why loading takes as long as it does.
const slowReason = " (an Envoy compiles it, by 4 to 6 s of CPU each: this takes longer where the machine is busy)"

// stageNames are what people read.
var stageNames = map[campaign.Stage]string{
	campaign.StageFleet: "waiting for sidecars", campaign.StageLoad: "loading the plugin into the sidecars", campaign.StageClean: "clean runs",
	campaign.StageSearch: "trials", campaign.StageContrast: "contrast", campaign.StageReplay: "replay", campaign.StageDone: "done",
}

// progress shows how a campaign goes on: a bar on a terminal, else lines.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	start time.Time
	stage campaign.Stage
	// loading is what the campaign calls the first push, and loaded how many sidecars
	// have it, as was last said.
	loading string
	loaded  int
	// entered is when the stage began.
	entered time.Time
	// said is when the last line about trials was written.
	said     time.Time
	findings int
	// warnings that were written, for the report.
	warnings []string
	// refused: it was said that clean runs are.
	refused  bool
	trials   int
	searched time.Time
}

var _ campaign.Progress = (*progress)(nil)

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, start: time.Now()}
	if isTerminal(w) {
		p.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false), progressbar.OptionThrottle(60*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionSpinnerType(14))
	}
	return p
}

// Update implements campaign.Progress.
func (p *progress) Update(u campaign.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.Stage != p.stage {
		p.enter(u.Stage, u.Text != "" && !u.Warning)
	}
	if u.Text != "" && u.Stage != campaign.StageDone {
		text := report.OneLine(u.Text)
		switch {
		case !u.Warning:
			p.write(text)
		case u.Stage == campaign.StageLoad:
			p.write("warning: " + text) // of a wait that will have ended
		default:
			p.warn(text)
		}
		if u.Stage == campaign.StageLoad && !u.Warning {
			p.loading = text
		}
	}
	if u.Stage == campaign.StageClean && !p.refused {
		for _, text := range refusals(u.Trial.GetAnswers()) {
			p.refused = true
			p.warn(text)
		}
	}
	if u.Finding != nil {
		p.finding(u.Finding)
	}
	if u.Stage == campaign.StageSearch {
		p.trials = max(p.trials, u.Done) // control runs are none
	}
	if p.bar != nil {
		p.draw(u)
		return
	}
	// Each sidecar that has the plugin is news: it takes one seconds.
	news := u.Stage == campaign.StageLoad && u.Done > p.loaded
	if u.Planned > 0 && u.Stage != campaign.StageDone && (news || time.Since(p.said) >= quietTime) {
		p.said, p.loaded = time.Now(), u.Done
		p.write(fmt.Sprintf("%s: %d of %d%s", p.name(u.Stage), u.Done, u.Planned, p.rate()+p.slow(u)))
	}
}

// slow says why sidecars that load the plugin have not done so yet, once that takes long.
func (p *progress) slow(u campaign.Update) string {
	if u.Stage != campaign.StageLoad || p.name(u.Stage) != stageNames[campaign.StageLoad] || u.Done >= u.Planned || time.Since(p.entered) < slowLoad {
		return ""
	}
	return slowReason
}

// name is what people read of a stage.
func (p *progress) name(s campaign.Stage) string {
	if s == campaign.StageLoad && p.loading != "" {
		return p.loading
	}
	return stageNames[s]
}

// enter begins a stage; told says that the update has words of its own for it.
func (p *progress) enter(s campaign.Stage, told bool) {
	p.stage, p.entered = s, time.Now()
	if s == campaign.StageSearch {
		p.searched, p.said = time.Now(), time.Now()
	}
	if p.bar == nil && !told && s != campaign.StageDone {
		p.write(stageNames[s])
	}
}

func (p *progress) finding(f *campaignv1.Finding) {
	kind := "finding"
	switch f.GetSignature().GetClass() {
	case campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED:
		kind = "degraded"
	case campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED:
		kind = "suspected"
	}
	if kind == "finding" {
		p.findings++
	}
	p.write(strings.TrimSpace(fmt.Sprintf("%s %s", kind, f.GetId())) + ": " + report.OneLine(f.GetSignature().GetSummary()))
}

// rate tells trials a second, while there are any.
func (p *progress) rate() string {
	seconds := time.Since(p.searched).Seconds()
	if p.stage != campaign.StageSearch || p.trials == 0 || seconds <= 0 {
		return ""
	}
	return fmt.Sprintf(", %.1f trials/s", float64(p.trials)/seconds)
}

func (p *progress) draw(u campaign.Update) {
	text := p.name(u.Stage)
	if u.Planned > 0 {
		text += fmt.Sprintf(" %d of %d", u.Done, u.Planned)
	}
	text += p.rate() + p.slow(u)
	if u.Stage == campaign.StageSearch {
		if p.findings > 0 {
			text += fmt.Sprintf(", %d found", p.findings)
		}
	}
	p.bar.Describe(text)
	// A bar that is full clears itself, and there may be more to come: it is kept
	// one short.
	if u.Planned > 0 {
		if u.Planned+1 != p.bar.GetMax() {
			p.bar.ChangeMax(u.Planned + 1)
		}
		_ = p.bar.Set(min(u.Done, u.Planned))
		return
	}
	_ = p.bar.RenderBlank()
}

// line writes a line from outside a campaign.
func (p *progress) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(text)
}

func (p *progress) write(text string) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, "%6.1fs  %s\n", time.Since(p.start).Seconds(), text)
	p.said = time.Now()
}

// warn writes a warning and keeps it.
func (p *progress) warn(text string) {
	p.write("warning: " + text)
	if !slices.Contains(p.warnings, text) {
		p.warnings = append(p.warnings, text)
	}
}

func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
