package experiment

import (
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/predict/theory"
)

const pooled = `
rollout: {concurrency: 64, group_size: 4}
train: {batch: 32}
modelled:
  decode_tokens_per_s: 50
  prompt_tokens: 200
  length: {kind: exponential, mean_tokens: 1000}
  environment: {mean_s: 4}
  scorer: {tokens_per_s: 400, concurrency: 4}
  train: {step_s: 5}
`

// A prediction names the scorers where they bind, and says what they pass by the closed form, which the simulation keeps.
func TestPredictionNamesTheScorers(t *testing.T) {
	load := func(overrides ...string) (config.Config, theory.Input) {
		t.Helper()
		raw, err := config.Parse("pooled.yaml", []byte(pooled))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = raw.Set(overrides...); err != nil {
			t.Fatal(err)
		}
		d, err := raw.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		in, err := Input(d)
		if err != nil {
			t.Fatal(err)
		}
		return d, in
	}
	answer := func(overrides ...string) Answer {
		t.Helper()
		d, in := load(overrides...)
		a, err := AnswerTo(in, Uncovered(d), false, func() (config.Config, error) { return d, nil })
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := answer()
	warnings := strings.Join(a.Warnings, "\n")
	if a.Basis != basisSimulation || a.Simulated.Binding != "scorer" || !strings.Contains(warnings, "a pool of 4 scorers passes at most 1.33 rollouts a second") {
		t.Errorf("basis %s, binding %+v: %s", a.Basis, a.Simulated, warnings)
	}
	if period := a.Period.S.Or(0); math.Abs(period/(32/(4/3.0))-1) > 0.01 {
		t.Errorf("an update every %g s, of 32 rollouts at 4/3 a second", period)
	}
	d, in := load()
	if pool, limited := scorersOf(d, in); !limited || math.Abs(pool.AwayS-24) > 0.1 || math.Abs(pool.ServiceS-3) > 0.01 || pool.Slots != 64 || pool.Servers != 4 {
		t.Errorf("%+v, limited %t: want 4 s of environment after 20 of decoding, and 3 s to read 1,200 tokens", pool, limited)
	}
	free := answer("modelled.scorer.concurrency=null", "modelled.prompt_tokens=null")
	if text := strings.Join(free.Warnings, "\n"); strings.Contains(text, "pool") || !strings.Contains(text, "long rollouts take scorers long") {
		t.Errorf("scorers without a limit: %s", text)
	}
}
