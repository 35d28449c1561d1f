package valid

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Bounds of campaigns (proto: sequencefi.campaign.v1.CampaignSpec).
const (
	MaxParallelism = 64
	MaxSteps       = 256
	MaxTimeout     = time.Hour
	MaxBudget      = 30 * 24 * time.Hour
	maxRuns        = 1000
)

// CampaignSpec returns the problems of a campaign.
func CampaignSpec(m *campaignv1.CampaignSpec) []Problem {
	var c checker
	if n := m.GetName(); len(n) == 0 || len(n) > 64 || !charset(n, "-") || n != strings.ToLower(n) {
		c.want("name", "must be 1 to 64 characters of [a-z0-9-] (got %q)", cut(n, 80))
	}
	if m.GetWorkload() == nil {
		c.want("workload", "must say what a trial runs")
	} else {
		c.workload("workload", m.GetWorkload())
	}
	c.oracle("oracle", m.GetOracle())
	c.faultModel("faults", m.GetFaults())
	c.campaignBudget("budget", m.GetBudget())
	if strings.ContainsRune(m.GetTopology(), 0) {
		c.want("topology", "must be the path of a topology file")
	}
	return c.problems
}

// Workload returns the problems of a workload.
func Workload(m *campaignv1.Workload) []Problem {
	var c checker
	c.workload("", m)
	return c.problems
}

// Oracle returns the problems of an oracle. Whether its CEL expressions compile
// is for who runs them to say.
func Oracle(m *campaignv1.Oracle) []Problem {
	var c checker
	c.oracle("", m)
	return c.problems
}

// FaultModel returns the problems of a fault model.
func FaultModel(m *campaignv1.FaultModel) []Problem {
	var c checker
	c.faultModel("", m)
	return c.problems
}

// Budget returns the problems of a budget.
func Budget(m *campaignv1.Budget) []Problem {
	var c checker
	c.campaignBudget("", m)
	return c.problems
}

func (c *checker) workload(path string, m *campaignv1.Workload) {
	switch p := m.GetParallelism(); {
	case p > MaxParallelism:
		c.want(field(path, "parallelism"), "must be at most %d (got %d)", MaxParallelism, p)
	case p > 1 && !m.GetIsolated():
		c.want(field(path, "parallelism"), "must be 1 unless isolated is true: trials would see each other's state (got %d)", p)
	}
	if len(m.GetSteps()) == 0 {
		c.want(field(path, "steps"), "must have at least one step")
	}
	// A step without a name is called by its index in the workload.
	names := make(map[string]string)
	index := 0
	// Captured values flow from step to step in the order in which they run.
	captured := map[string]bool{"trial.id": true}
	for _, part := range []struct {
		name  string
		steps []*campaignv1.Step
	}{{"before", m.GetBefore()}, {"steps", m.GetSteps()}, {"after", m.GetAfter()}} {
		at := field(path, part.name)
		if n := len(part.steps); n > MaxSteps {
			c.want(at, "must be at most %d (got %d)", MaxSteps, n)
		}
		for i, s := range part.steps {
			index++
			c.step(item(at, i), s, captured)
			n := s.GetName()
			if n == "" {
				n = strconv.Itoa(index)
			}
			if first, ok := names[n]; ok {
				c.want(field(item(at, i), "name"), "must be unique in the workload (%s is called %q too)", first, cut(n, 64))
			} else {
				names[n] = item(at, i)
			}
		}
	}
}

func (c *checker) step(path string, m *campaignv1.Step, captured map[string]bool) {
	if n := m.GetName(); n != "" && (len(n) > 64 || !charset(n, "._-")) {
		c.want(field(path, "name"), "must be at most 64 characters of [A-Za-z0-9._-] (got %q)", cut(n, 80))
	}
	switch a := m.GetAction().(type) {
	case *campaignv1.Step_Http:
		c.httpRequest(field(path, "http"), a.Http, captured)
	case *campaignv1.Step_Command:
		c.command(field(path, "command"), a.Command)
	default:
		c.want(path, "must have one of http and command")
	}
}

func (c *checker) httpRequest(path string, m *campaignv1.HttpRequest, captured map[string]bool) {
	if method := m.GetMethod(); method != "" && !token(method) {
		c.want(field(path, "method"), "must be an HTTP method (got %q)", cut(method, 64))
	}
	c.url(field(path, "url"), m.GetUrl())
	c.placeholders(field(path, "url"), m.GetUrl(), captured)
	for _, name := range sortedKeys(m.GetHeaders()) {
		at := entry(field(path, "headers"), name)
		value := m.GetHeaders()[name]
		lower := strings.ToLower(name)
		switch {
		case !token(name):
			c.want(at, "must be a header name")
		case TraceHeader(name):
			c.want(at, "must be left out: SequenceFI sets it for each trial")
		case strings.HasPrefix(lower, "x-fic-"):
			c.want(at, "must be left out: it is one of SequenceFI's own headers")
		}
		c.headerValue(at, value)
		c.placeholders(at, value, captured)
	}
	c.placeholders(field(path, "body"), m.GetBody(), captured)
	c.duration(field(path, "timeout"), m.GetTimeout(), 0, MaxTimeout)
	for _, name := range sortedKeys(m.GetCapture()) {
		at := entry(field(path, "capture"), name)
		if !identifier(name) {
			c.want(at, "must be named by letters, digits and _")
		}
		if strings.TrimSpace(m.GetCapture()[name]) == "" {
			c.want(at, "must be a CEL expression over answer, like answer.json.id")
		}
		captured[name] = true
	}
}

// url checks an URL in which placeholders may stand; one that begins with a
// placeholder is known only when it runs.
func (c *checker) url(path, raw string) {
	if strings.HasPrefix(raw, "${") {
		return
	}
	plain, ok := replacePlaceholders(raw)
	u, err := url.Parse(plain)
	if !ok || err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		c.want(path, "must be an absolute URL like \"http://127.0.0.1:8080/dispatch?customer=123\" (got %q)", cut(raw, 120))
	}
}

// placeholders checks that every `${name}` will have a value.
func (c *checker) placeholders(path, text string, captured map[string]bool) {
	for {
		_, rest, ok := strings.Cut(text, "${")
		if !ok {
			return
		}
		name, after, ok := strings.Cut(rest, "}")
		switch {
		case !ok:
			c.want(path, "must close every \"${\" by \"}\"")
			return
		case !captured[name]:
			c.want(path, "must use only ${trial.id} and values that an earlier step captures (got ${%s})", cut(name, 64))
		}
		text = after
	}
}

// replacePlaceholders puts a digit for each placeholder; a digit fits
// everywhere, ports included.
func replacePlaceholders(text string) (string, bool) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "${")
		b.WriteString(before)
		if !ok {
			return b.String(), true
		}
		_, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", false
		}
		b.WriteByte('1')
		text = after
	}
}

func (c *checker) command(path string, m *campaignv1.Command) {
	if len(m.GetArgv()) == 0 || m.GetArgv()[0] == "" {
		c.want(field(path, "argv"), "must begin with a program")
	}
	for i, a := range m.GetArgv() {
		if strings.ContainsRune(a, 0) {
			c.want(item(field(path, "argv"), i), "must have no NUL")
		}
	}
	for _, name := range sortedKeys(m.GetEnv()) {
		at := entry(field(path, "env"), name)
		if name == "" || strings.ContainsAny(name, "=\x00") {
			c.want(at, "must be the name of an environment variable")
		}
		if name == strings.ToUpper(name) && TraceHeader(strings.ReplaceAll(name, "_", "-")) {
			c.want(at, "must be left out: SequenceFI sets it for each trial")
		}
		if strings.ContainsRune(m.GetEnv()[name], 0) {
			c.want(at, "must have no NUL")
		}
	}
	c.duration(field(path, "timeout"), m.GetTimeout(), 0, MaxTimeout)
}

func (c *checker) oracle(path string, m *campaignv1.Oracle) {
	names := make(map[string]int)
	for i, inv := range m.GetInvariants() {
		at := item(field(path, "invariants"), i)
		n := inv.GetName()
		if n == "" || len(n) > 128 {
			c.want(field(at, "name"), "must be 1 to 128 characters")
		} else if first, ok := names[n]; ok {
			c.want(field(at, "name"), "must be unique (invariants[%d] has it too)", first)
		}
		names[n] = i
		if strings.TrimSpace(inv.GetCel()) == "" {
			c.want(field(at, "cel"), "must be a CEL expression over answer, answers, probes and trace")
		}
	}
	changing := make(map[string]bool)
	for i, a := range m.GetStateChanging() {
		c.api(item(field(path, "stateChanging"), i), a)
		changing[a] = true
	}
	for i, a := range m.GetHarmless() {
		at := item(field(path, "harmless"), i)
		c.api(at, a)
		if changing[a] {
			c.want(at, "must not be among stateChanging too (%q)", cut(a, 64))
		}
	}
	c.duration(field(path, "maxDuration"), m.GetMaxDuration(), 0, MaxTimeout)
	for i, p := range m.GetIgnore() {
		if !jsonPath(p) {
			c.want(item(field(path, "ignore"), i), "must be a JSON path like \"$.items[*].id\" (got %q)", cut(p, 80))
		}
	}
}

// jsonPath reports whether p is `$` followed by `.name`, `[n]` and `[*]`.
func jsonPath(p string) bool {
	rest, ok := strings.CutPrefix(p, "$")
	if !ok {
		return false
	}
	for rest != "" {
		switch rest[0] {
		case '.':
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			if end == 0 {
				return false
			}
			rest = rest[1+end:]
		case '[':
			index, after, ok := strings.Cut(rest[1:], "]")
			if !ok || index == "" || (index != "*" && strings.Trim(index, "0123456789") != "") {
				return false
			}
			rest = after
		default:
			return false
		}
	}
	return true
}

func (c *checker) faultModel(path string, m *campaignv1.FaultModel) {
	names := make(map[string]int)
	for i, f := range m.GetFaults() {
		at := item(field(path, "faults"), i)
		n := f.GetName()
		if len(n) == 0 || len(n) > 32 || !charset(n, "._-") {
			c.want(field(at, "name"), "must be 1 to 32 characters of [A-Za-z0-9._-] (got %q)", cut(n, 80))
		} else if first, ok := names[n]; ok {
			c.want(field(at, "name"), "must be unique (faults[%d] has it too)", first)
		}
		names[n] = i
		c.fault(field(at, "fault"), f.GetFault())
	}
	phases := make(map[tfiv1.Phase]bool)
	for i, p := range m.GetPhases() {
		at := item(field(path, "phases"), i)
		c.phase(at, p)
		if phases[p] {
			c.want(at, "must be unique (%v is there already)", p)
		}
		phases[p] = true
	}
	c.placement(field(path, "placement"), m.GetPlacement())
	c.services(field(path, "callees"), m.GetCallees())
}

func (c *checker) campaignBudget(path string, m *campaignv1.Budget) {
	c.duration(field(path, "duration"), m.GetDuration(), 0, MaxBudget)
	if n := m.GetCleanRuns(); n > maxRuns {
		c.want(field(path, "cleanRuns"), "must be at most %d (got %d)", maxRuns, n)
	}
	if n := m.GetConfirmations(); n > maxRuns {
		c.want(field(path, "confirmations"), "must be at most %d (got %d)", maxRuns, n)
	}
}

// Replay returns the problems of a replay.
func Replay(m *campaignv1.Replay) []Problem {
	c := checker{problems: Under("spec", CampaignSpec(m.GetSpec()))}
	if m.GetTopology() == nil {
		c.want("topology", "must be the content of a topology file")
	}
	c.someTFICs("tfics", m.GetTfics())
	for i, w := range m.GetOthers() {
		c.someTFICs(fmt.Sprintf("others[%d].tfics", i), w.GetTfics())
	}
	if id := m.GetSignature().GetId(); len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "" {
		c.want("signature.id", "must be the outcome to reproduce, as 16 hex digits (got %q)", cut(id, 64))
	}
	return c.problems
}
