package plan

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/theory"
)

// DocumentOf is a candidate as a document of its own, resolved: what headway
// simulate, predict, doctor and run take.
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
	set := append(c.overrides(),
		keyed{"rollout.decode_tokens_per_s", plain(round6(c.DecodeTokensPerS))},
		keyed{"train.step_s", plain(round6(c.StepS))},
		keyed{"sync.time_s", plain(round6(c.SyncS))})
	if c.GPUs() > p.Machine.GPUs { // a lever that adds some
		set = append(set, keyed{"hardware.gpus", fmt.Sprint(c.GPUs())})
	}
	if c.Policy == theory.PolicySynchronous {
		set = append(set, keyed{"queue", "null"})
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
	text.Write(document.YAML())
	return []byte(text.String()), nil
}
