package doctor

import (
	"errors"
	"slices"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/predict/theory"
)

// Case is a document to examine. Where the document says how fast engines and
// trainer are, the case also has it as a prediction's and a simulation's input.
type Case struct {
	// Document is resolved. It may break a relation between keys that config
	// refuses and [Refuted] explains.
	Document config.Config
	// Setting is the document for the closed forms; nil where it gives no speeds. Its
	// Environment is all the time a rollout spends outside its engine, where a closed form covers that.
	Setting *theory.Input
	// Simulation is the document for the simulator; nil where it gives no speeds.
	// Its window is doctor's own.
	Simulation *sim.Config
	// Beside says what of the document no closed form covers even under queue-drop (waits
	// for tools or sandboxes, unequal engines, lost ones), "" for nothing. Its findings are
	// then by rule and by simulation alone.
	Beside string
	// Model holds the findings about model.path. Servers holds the answers of the engines' servers, in the document's
	// order; nil where engines are embedded, or were not asked.
	Model   *Model
	Servers []Server
	// Scorers holds the answers of scoring.servers, in the document's order; nil where they were not asked.
	Scorers []Scorer
	// Environment is what was found of what rollouts are played with; nil where somebody else plays them.
	Environment *EnvironmentFound
}

// check is one kind of finding and the code that looks for it. A check may add
// several findings, all of its kind.
type check struct {
	kind Kind
	look func(*examination)
}

// checks lists all kinds, in the order of docs/reference/doctor.md.
func checks() []check {
	return slices.Concat(plannedChecks, budgetChecks, capacityChecks, wasteChecks, boundChecks, orderChecks, shapeChecks, bandChecks, replayChecks, paceChecks, idleChecks,
		admissionChecks, selectionChecks, lengthChecks, serviceChecks, spanChecks, serverChecks, environmentChecks, controlChecks)
}

// configWarning is what config itself finds doubtful, and no finding here is about.
var configWarning = Kind{
	Code: "config", Severities: []Severity{Warning}, Keys: []string{"any"},
	When:  "config itself finds a key doubtful that no other finding is about",
	Known: "arithmetic: `headway config` says the same",
}

// configWarnings adds what config finds doubtful.
func (e *examination) configWarnings() {
	e.kind = configWarning
	for _, w := range e.document.Warnings() {
		same := func(f Finding) bool { return f.Key == w.Key }
		// Hold is examined with the load, which decides it.
		if w.Key == keyHold || slices.ContainsFunc(e.findings, same) {
			continue
		}
		f := e.add(Warning, w.Key, Arithmetic)
		what, why, _ := strings.Cut(w.Text, ": ")
		f.What, f.Why = w.Key+" "+what, why
	}
}

// Check returns everything that is to be said about a case, the gravest first
// and in the order of [Kinds] among equals. The error is of the models or the
// simulator: a case whose document was resolved and whose inputs were made from
// it gives none.
func Check(c Case) ([]Finding, error) {
	e := newExamination(c)
	for _, check := range checks() {
		e.kind = check.kind
		check.look(e)
		if e.err != nil {
			return nil, e.err
		}
	}
	e.configWarnings()
	slices.SortStableFunc(e.findings, func(a, b Finding) int { return a.Severity.rank() - b.Severity.rank() })
	return e.findings, nil
}

// Refuted returns the findings that explain a document which config refuses, and
// whether they explain all of it. An error that no finding is about is bad input,
// and nothing more can be said. Document need not be valid.
func Refuted(document config.Config, refused error) (findings []Finding, all bool) {
	errs, is := errors.AsType[config.Errors](refused)
	if !is || document.Rollout.GroupSize < 1 || document.Train.Batch < 1 {
		return nil, false
	}
	sound := soundCounts(document)
	e := newExamination(Case{Document: document})
	for _, check := range checks() {
		// Without whole groups there is no other argument to start from.
		if slices.Contains(check.kind.Severities, Error) && (sound || check.kind.Code == "batch-of-groups") {
			e.kind = check.kind
			check.look(e)
		}
	}
	findings = slices.DeleteFunc(e.findings, func(f Finding) bool { return f.Severity != Error })
	for _, err := range errs {
		about := func(f Finding) bool { return f.Key == err.Key }
		if !slices.ContainsFunc(findings, about) {
			return nil, false
		}
	}
	return findings, true
}

// soundCounts reports whether the counts that every argument starts from make sense.
func soundCounts(d config.Config) bool {
	return wholeGroups(d) && d.Rollout.Concurrency >= 1 && d.Sync.Every >= 1
}

// examination is one Check under way.
type examination struct {
	document config.Config
	rules    loop.Config
	setting  *theory.Input
	simulate *sim.Config
	beside   string
	model    *Model
	servers  []Server
	scorers  []Scorer
	// environment is the case's.
	environment *EnvironmentFound
	kind        Kind
	findings    []Finding
	err         error

	probed *probe
	// goal is what goalProbe simulated.
	goal *controlled
	// piloted is pilotLoad's answer, 0 before it is asked.
	piloted    float64
	prediction *theory.Prediction
	// mean is meanTokens once load has computed it.
	mean float64
}

func newExamination(c Case) *examination {
	return &examination{document: c.Document, rules: c.Document.LoopConfig().WithDefaults(), setting: c.Setting, simulate: c.Simulation, beside: c.Beside, model: c.Model, servers: c.Servers, scorers: c.Scorers, environment: c.Environment}
}

// add notes a finding of the running check about a key, and returns it to be filled in.
func (e *examination) add(severity Severity, key string, basis Basis) *Finding {
	f := Finding{Severity: severity, Code: e.kind.Code, Key: key, Basis: basis, Figures: Figures{}}
	f.Scenarios = knownAs(f)
	var placed *config.Error
	// A default has the document's name and no line; a preset and an override have no line either.
	if errors.As(e.document.Refuse(key, "", ""), &placed) && (placed.Line > 0 || placed.File == "--set" || strings.HasPrefix(placed.File, "preset ")) {
		f.File, f.Line = placed.File, placed.Line
	}
	if basis == Simulated && e.probed != nil {
		f.Groups = e.probed.groups
	}
	e.findings = append(e.findings, f)
	return &e.findings[len(e.findings)-1]
}

// stride is the rollouts issued at most for one group, S+R.
func (e *examination) stride() int { return e.rules.GroupSize + e.rules.Redundancy }

// plain reports whether nothing is set that the closed forms know nothing of:
// pauses of admission, interrupts, rollouts cut short, prompts that differ in
// length, filters on modelled rewards.
func (e *examination) plain() bool {
	r := &e.rules
	return r.PauseGroups == 0 && !r.InterruptAtBatch && r.Redundancy == 0 && !e.controlled() && e.document.Rollout.Prune.Tokens == 0 &&
		e.document.Modelled.Length.PromptSigma == 0 && !r.FilterZeroAdvantage && !r.FilterSolveRate
}

// controlled reports whether settings are moved towards a goal, so that those of the document are only a start.
func (e *examination) controlled() bool {
	goal := e.rules.Control
	return goal != nil && (goal.Mean > 0 || goal.Share > 0)
}

// predict returns the closed form of the case under queue-drop, oldest first,
// which is what the other policies are measured against; ok is false where the
// case gives no speeds, or something beside that no closed form covers.
func (e *examination) predict() (p theory.Prediction, ok bool) {
	if e.setting == nil || e.err != nil || e.beside != "" {
		return p, false
	}
	if e.prediction == nil {
		in := *e.setting
		in.Policy, in.Select, in.MaxStaleness = theory.PolicyDrop, theory.SelectOldest, 0
		p, err := theory.Predict(in)
		if err != nil {
			e.err = err
			return p, false
		}
		e.prediction = &p
	}
	return *e.prediction, true
}
