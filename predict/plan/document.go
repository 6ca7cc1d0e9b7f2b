package plan

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/predict/theory"
)

// DocumentOf is a candidate as a document of its own, resolved, as headway
// simulate, predict, doctor and run take it.
func (p *Problem) DocumentOf(c *Candidate) (config.Config, error) {
	var overrides []string
	for _, o := range p.keys(c) {
		overrides = append(overrides, o.key+"="+o.value)
	}
	changed, err := p.Raw.Set(overrides...)
	if err != nil {
		return config.Config{}, fmt.Errorf("plan: document of %s: %w", c.Rule(), err)
	}
	document, err := changed.Resolve()
	if err != nil {
		return config.Config{}, fmt.Errorf("plan: document of %s: %w", c.Rule(), err)
	}
	return document, nil
}

// keys are everything a candidate's document says beyond the plan's own.
func (p *Problem) keys(c *Candidate) []keyed {
	set := append(c.overrides(), p.speed(c)...)
	set = append(set,
		keyed{"modelled.train.step_s", plain(round6(c.StepS))},
		keyed{"modelled.sync.time_s", plain(round6(c.SyncS))})
	if p.Raw.Given("failures.engine_plan") { // a plan's engines are others than the document's
		set = append(set, keyed{"failures.engine_plan", "null"})
	}
	set = append(set, p.reading()...)
	if p.Machine.GPU != "" && !p.Raw.Given("hardware.gpus_per_replica") { // the plan's choice
		set = append(set, keyed{"hardware.gpus_per_replica", fmt.Sprint(p.Machine.GPUsPerReplica)})
	}
	if c.GPUs() > p.Machine.GPUs { // a lever that adds some
		set = append(set, keyed{"hardware.gpus", fmt.Sprint(c.GPUs())})
	}
	if c.Policy == theory.PolicySynchronous {
		set = append(set, keyed{"queue", "null"})
	}
	return set
}

// reading keeps what a document says of prompts and drops what would have them read
// twice: where replicas read them, that is in the speeds.
func (p *Problem) reading() []keyed {
	if p.Machine.ReadS > 0 { // slots or a pool read, as the simulation has it
		return nil
	}
	var set []keyed
	if p.Raw.Given("modelled.prompt_tokens") && !p.Raw.Given("hardware.prompt_tokens") {
		set = append(set, keyed{"hardware.prompt_tokens", plain(p.Document.Hardware.PromptTokens)})
	}
	if p.Raw.Given("modelled.prefill") {
		set = append(set, keyed{"modelled.prefill", "null"})
		if p.Document.Modelled.Prefill.TokensPerS > 0 && !p.Raw.Given("hardware.prefill_tokens_per_s") {
			set = append(set, keyed{"hardware.prefill_tokens_per_s", plain(p.Document.Modelled.Prefill.TokensPerS)})
		}
	}
	if p.Raw.Given("modelled.prompt_tokens") && p.Document.Modelled.Sync.PrefillTokensPerS > 0 {
		set = append(set, keyed{"modelled.prompt_tokens", "null"}) // a sync's speed would stand in
	}
	return set
}

// curveParts is into how many parts a curve divides the slots.
const curveParts = 8

// speed says how fast slots are: one speed where all of them are always at work;
// under rules that leave slots empty a curve, since the others are the faster for
// it. All replicas count as one engine, evenly loaded.
func (p *Problem) speed(c *Candidate) []keyed {
	tokens := p.Lengths.Mean()
	if c.Policy == theory.PolicyDrop && c.Hold == 0 || c.SlotsPerReplica < curveParts {
		speed := 1 / (1/c.DecodeTokensPerS - p.Machine.ReadS/tokens)
		set := []keyed{{"modelled.decode_curve", "null"}, {"modelled.decode_tokens_per_s", plain(round6(speed))}}
		if p.Raw.Given("modelled.decode_curve") { // what was measured stays, at this setting's slots
			slots, gpus := float64(c.SlotsPerReplica), float64(p.Machine.GPUsPerReplica)
			set = append(set, keyed{"hardware.slots_per_gpu", plain(slots / gpus)},
				keyed{"hardware.rollout_tokens_per_s_per_gpu", plain(round6(slots / gpus / p.Machine.StepS(slots)))})
		}
		return set
	}
	points := make([]string, curveParts)
	for i := range points {
		share := float64(i+1) / curveParts
		active := share * float64(c.SlotsPerReplica)
		step := p.Machine.tokenS(active, tokens) - p.Machine.ReadS/tokens
		points[i] = fmt.Sprintf("{active: %d, tokens_per_s: %s}", int(share*float64(c.Concurrency())), plain(round6(1/step)))
	}
	set := []keyed{{"modelled.decode_tokens_per_s", "null"}, {"modelled.decode_curve", "[" + strings.Join(points, ", ") + "]"}}
	if p.Raw.Given("hardware.rollout_tokens_per_s_per_gpu") { // the curve says it
		set = append(set, keyed{"hardware.rollout_tokens_per_s_per_gpu", "null"}, keyed{"hardware.slots_per_gpu", "null"})
	}
	return set
}

// round6 keeps six significant digits: what a person can read, far below any error.
func round6(x float64) float64 {
	var rounded float64
	if _, err := fmt.Sscan(fmt.Sprintf("%.6g", x), &rounded); err != nil {
		return x
	}
	return rounded
}

// writtenFor warns against training with the document as it is written.
const writtenFor = `# This document is to simulate, predict and examine. Its model, engines, environment and trainer
# are the built-in toy: headway run and serve refuse it. Before you train, replace them as docs/plan.md
# says under "From the plan to your cluster".
`

// Written is a candidate's document as text, with what it is for on top.
func (p *Problem) Written(c *Candidate) ([]byte, error) {
	document, err := p.DocumentOf(c)
	if err != nil {
		return nil, err
	}
	f := c.Best()
	var text strings.Builder
	fmt.Fprintf(&text, "# Written by headway plan: %d rollout and %d train GPUs, %s.\n", c.RolloutGPUs, c.TrainGPUs, c.Rule())
	fmt.Fprintf(&text, "# Expected: staleness %.2f versions (p95 %d), an update every %.4g s.\n", f.StalenessMean, f.StalenessP95, f.PeriodS)
	if over, key := p.excess(&f); over > 0 {
		fmt.Fprintf(&text, "# NO SETTING KEEPS THE BUDGET: this one, the closest, misses budget.%s by %s.\n", key, percent(over))
	}
	fmt.Fprintf(&text, "# One engine stands for all replicas; decode speeds have the replicas' reading of prompts and tools' outputs in them.\n")
	fmt.Fprint(&text, writtenFor)
	text.Write(document.YAML())
	return []byte(text.String()), nil
}
