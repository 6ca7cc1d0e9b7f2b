package doctor

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/theory"
)

// document is what cases change: small, near balance, and nothing in it to find.
const document = `
seed: 7
rollout: {concurrency: 64, group_size: 4}
train: {batch: 64}
modelled:
  decode_tokens_per_s: 50
  train: {utilization: 0.9}
`

// lengths are lengths short enough to simulate many of.
const lengths = "modelled.length={kind: lognormal, mean_tokens: 300, tailness: 50, cap_tokens: 1800}"

// resolved is the document under overrides.
func resolved(t *testing.T, overrides ...string) (config.Config, error) {
	t.Helper()
	c, err := config.Parse("case.yaml", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.Set(dotted(overrides)...); err != nil {
		t.Fatalf("%q: %v", overrides, err)
	}
	return c.Resolve()
}

// dotted takes overrides of the sections rollout and train apart, which would
// replace the document's whole section otherwise.
func dotted(overrides []string) []string {
	var apart []string
	for _, override := range overrides {
		section, keys, ok := strings.Cut(override, "={")
		if !ok || section != "rollout" && section != "train" {
			apart = append(apart, override)
			continue
		}
		for _, key := range strings.Split(strings.TrimSuffix(keys, "}"), ", ") {
			apart = append(apart, section+"."+strings.Replace(key, ": ", "=", 1))
		}
	}
	return apart
}

// caseOf is the document under overrides as a case, with the inputs that the
// command line makes of it.
func caseOf(t *testing.T, overrides ...string) Case {
	t.Helper()
	d, err := resolved(t, overrides...)
	if err != nil {
		t.Fatalf("%q: %v", overrides, err)
	}
	if d.Modelled.Train.Utilization == 0 && d.Modelled.Train.StepS == 0 {
		return Case{Document: d}
	}
	modelled, err := d.ForSimulation()
	if err != nil { // rewards are not modelled
		d.Modelled.DecodeTokensPerS = max(d.Modelled.DecodeTokensPerS, 50)
		in := settingOf(t, d)
		return Case{Document: d, Setting: &in}
	}
	in := settingOf(t, modelled)
	cfg := simulationOf(t, modelled, in)
	beside := besideOf(d)
	if beside == "" {
		in.Environment = must[*workload.Times](t)(modelled.OutsideModel())
	}
	return Case{Document: d, Setting: &in, Simulation: &cfg, Beside: beside}
}

// besideOf says what of a document has no closed form.
func besideOf(d config.Config) string {
	switch {
	case d.Modelled.Train.StepCV > 0:
		return "train steps take different times"
	case d.Modelled.Tools.Concurrency > 0 || d.Modelled.Sandbox.When == "rollout" || d.Modelled.Sandbox.Limit > 0 || d.Modelled.Verifier.Concurrency+d.Modelled.Scorer.Concurrency > 0:
		return "rollouts wait for tools, sandboxes, verifiers or scorers"
	}
	return ""
}

// agentsOf is what rollouts do beside decoding, as the command line makes it.
func agentsOf(t *testing.T, d config.Config) *sim.Agents {
	t.Helper()
	r := d.Modelled
	if d.Modelled.Tools.Calls == 0 && d.Modelled.Sandbox.When == "" && d.Modelled.Verifier.Time.Kind == "" && d.Modelled.Scorer.None() {
		return nil
	}
	a := &sim.Agents{Seed: d.Seed, Tools: must[*workload.Tools](t)(d.ToolsModel()), ToolWorkers: r.Tools.Concurrency,
		Verifier: sim.Review{Time: must[*workload.Times](t)(d.VerifierModel()), Workers: d.Modelled.Verifier.Concurrency},
		Scorer:   sim.Review{Time: must[*workload.Times](t)(d.ScorerModel()), Workers: d.Modelled.Scorer.Concurrency}}
	if r.Sandbox.When != "" {
		a.Sandboxes = &sim.Sandboxes{Early: r.Sandbox.When == "rollout", Start: must[*workload.Times](t)(d.SandboxStartModel()), Limit: r.Sandbox.Limit,
			Starting: r.Sandbox.StartConcurrency, TimeoutNS: int64(1e9 * r.Sandbox.StartTimeoutS), FailureRate: r.Sandbox.FailureRate, Retries: r.Sandbox.Retries}
	}
	return a
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func settingOf(t *testing.T, d config.Config) theory.Input {
	t.Helper()
	in := theory.Input{
		ConcurrencyRollouts: float64(d.Rollout.Concurrency), BatchRollouts: float64(d.Train.Batch), GroupSize: d.Rollout.GroupSize,
		QueueFactor: float64(d.QueueGroups()) / float64(d.BatchGroups()), Utilization: d.Modelled.Train.Utilization,
		Lengths: must[*workload.Lengths](t)(d.LengthModel()), Environment: must[*workload.Times](t)(d.EnvironmentTimes()),
		DecodeTokensPerS: d.Modelled.DecodeTokensPerS, Policy: d.Queue.Policy, Select: d.Queue.Select, Start: d.Rollout.Start,
		Acceptance: d.Modelled.Filter.Acceptance, SyncTimeS: d.Modelled.Sync.TimeS, SyncMode: d.Sync.Mode, SyncTrainer: d.Sync.Trainer, SyncEvery: d.Sync.Every,
	}
	if d.Modelled.Train.StepS > 0 {
		in.Utilization = in.ConcurrencyRollouts * in.DecodeTokensPerS * d.Modelled.Train.StepS / (in.BatchRollouts * in.Lengths.Mean())
	}
	return in.WithDefaults()
}

func simulationOf(t *testing.T, d config.Config, in theory.Input) sim.Config {
	t.Helper()
	work := sim.NewModelled(d.Seed, in.Lengths, in.Environment, must[workload.Acceptance](t)(d.AcceptanceModel()), int64(math.Round(in.StepS*1e9))).
		WithSolve(must[*workload.Solve](t)(d.SolveModel())).WithPromptScale(must[workload.PromptScale](t)(d.PromptModel())).WithStep(sim.Step{CV: d.Modelled.Train.StepCV})
	return sim.Config{Loop: d.LoopConfig(), Work: work, NSPerToken: 1e9 / in.DecodeTokensPerS,
		SyncNS: int64(math.Round(d.Modelled.Sync.TimeS * 1e9)), PruneTokens: int32(d.Rollout.Prune.Tokens), Agents: agentsOf(t, d), Warmup: 20, Measured: 100}
}

// check examines a case, whose findings must keep to their kind.
func findingsOf(t *testing.T, c Case) []Finding {
	t.Helper()
	findings, err := Check(c)
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, findings)
	return findings
}

// wellFormed checks what holds of every finding.
func wellFormed(t *testing.T, findings []Finding) {
	t.Helper()
	for i, f := range findings {
		at := slices.IndexFunc(kinds(), func(k Kind) bool { return k.Code == f.Code })
		switch {
		case at < 0:
			t.Errorf("%s is no kind", f.Code)
			continue
		case !slices.Contains(kinds()[at].Severities, f.Severity):
			t.Errorf("%s is a %s, its kind has %v", f.Code, f.Severity, kinds()[at].Severities)
		case f.Code != configWarning.Code && !slices.Contains(kinds()[at].Keys, f.Key):
			t.Errorf("%s is about %s, its kind about %v", f.Code, f.Key, kinds()[at].Keys)
		case f.What == "" || f.Basis == "" || f.Figures == nil || f.Severity != Info && f.Do == "" && f.Code != configWarning.Code:
			t.Errorf("%s lacks something: %+v", f.Code, f)
		case i > 0 && findings[i-1].Severity.rank() > f.Severity.rank():
			t.Errorf("%s (%s) stands after %s (%s)", f.Code, f.Severity, findings[i-1].Code, findings[i-1].Severity)
		}
		if (f.Basis == Simulated) != (f.Groups > 0) && f.Code != "stalls" {
			t.Errorf("%s is known by %s of %d groups", f.Code, f.Basis, f.Groups)
		}
		for _, figure := range f.Figures {
			if math.IsNaN(figure.Value) || math.IsInf(figure.Value, 0) {
				t.Errorf("%s: %s is %v", f.Code, figure.Name, figure.Value)
			}
		}
	}
}

// find returns the finding of a code.
func find(findings []Finding, code string) (Finding, bool) {
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Code == code })
	if i < 0 {
		return Finding{}, false
	}
	return findings[i], true
}

// figure returns a number of a finding that must have it.
func figure(t *testing.T, f Finding, name string) float64 {
	t.Helper()
	value, ok := f.Figures.Value(name)
	if !ok {
		t.Fatalf("%s has no figure %s: %v", f.Code, name, f.Figures)
	}
	return value
}

// run simulates a case for so many steps, and returns what doctor's own probe would see.
func run(t *testing.T, c Case, warmup, measured int) probe {
	t.Helper()
	cfg := *c.Simulation
	cfg.Warmup, cfg.Measured = warmup, measured
	p, err := simulate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
