package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop/workload"
)

// Uncertain is an input without a measurement, with how far it may move the plan.
type Uncertain struct {
	// Input is decoding, training, sync or lengths. Spread is how far off it may be, the standard deviation of its logarithm.
	Input  string  `json:"input"`
	Spread float64 `json:"spread"`
	// UpdateLow and UpdateHigh are the recommended update's time with the input that far below and above, over its own.
	UpdateLow  float64 `json:"update_low"`
	UpdateHigh float64 `json:"update_high"`
	// Regret is what keeping the recommended setting then costs against the best one, the greater of both, a broken bound
	// of the budget included. SettingLow and SettingHigh are the best ones.
	Regret      float64 `json:"regret"`
	SettingLow  Setting `json:"setting_low"`
	SettingHigh Setting `json:"setting_high"`
	// Measure is the command or the key that determines it.
	Measure string `json:"measure"`
}

// moves is by how much the plan may move: its figure, and what a wrong setting costs.
func (u *Uncertain) moves() float64 { return u.Regret + math.Log(u.UpdateHigh/u.UpdateLow)/2 }

// Spreads of what is no constant of a fit, standard deviations of logarithms: a sync (docs/accuracy.md has its median
// error), a mean length and a spread of lengths that a document states.
const (
	syncSpread  = 0.4
	meanSpread  = 0.1
	tailSpread  = 0.25
	tailMost    = 99.0
	uncertainAt = 0.01
)

// uncertain moves each input that was not measured by its spread, and ranks again by closed form. The list begins with
// the input whose measurement narrows the plan most.
func (s *search) uncertain() error {
	p := *s.problem
	p.Progress = nil
	base, ok := p.bestByForm(nil)
	if !ok {
		return nil
	}
	m := &p.Machine
	inputs := []struct {
		name, measure string
		spread        float64
		moved         func(*Problem, float64) error
	}{
		{"decoding", "headway calibrate URL", m.spread.decode(float64(base.SlotsPerReplica)), func(q *Problem, by float64) error {
			whole := m.StepS
			q.Machine.StepS = func(active float64) float64 { return by * whole(active) }
			return nil
		}},
		{"training", "hardware.train_tokens_per_s_per_gpu", m.spread.train(base.TrainGPUs, base.BatchRollouts), func(q *Problem, by float64) error {
			q.Machine.TrainTokensPerSPerGPU /= by
			if whole := m.TrainS; whole != nil {
				q.Machine.TrainS = func(rollouts, tokens float64, gpus int) float64 { return by * whole(rollouts, tokens, gpus) }
			}
			return nil
		}},
		{"sync", "modelled.sync.time_s", m.spread.sync, func(q *Problem, by float64) error {
			whole := m.SyncS
			q.Machine.SyncS = func(rollout, train int) float64 { return by * whole(rollout, train) }
			return nil
		}},
		{"lengths", "headway calibrate URL --prompts FILE", m.spread.lengths, lengthen},
	}
	for _, in := range inputs {
		if in.spread == 0 {
			continue
		}
		u := Uncertain{Input: in.name, Spread: in.spread, Measure: in.measure}
		for _, side := range []struct {
			sign    float64
			update  *float64
			setting *Setting
		}{{-1, &u.UpdateLow, &u.SettingLow}, {1, &u.UpdateHigh, &u.SettingHigh}} {
			q := p
			if err := in.moved(&q, math.Exp(side.sign*in.spread)); err != nil {
				return err
			}
			best, ok := q.bestByForm(&base.Setting)
			if !ok {
				return nil
			}
			*side.setting, *side.update = best.Setting, best.kept.UpdateS/base.Predicted.UpdateS
			over, _ := q.excess(best.kept)
			u.Regret = max(u.Regret, q.objective(best.kept)/q.objective(best.Predicted)-1+over)
		}
		s.plan.Uncertain = append(s.plan.Uncertain, u)
	}
	slices.SortStableFunc(s.plan.Uncertain, func(a, b Uncertain) int { return cmp.Compare(b.moves(), a.moves()) })
	return nil
}

// formed is the best setting of a problem by closed form, with the figures of one that is kept instead.
type formed struct {
	Candidate
	kept *Figures
}

// bestByForm finds it among as many settings as a size of a replica is judged by; false where no closed form covers any.
func (p *Problem) bestByForm(keep *Setting) (formed, bool) {
	eval, err := newEvaluator(p)
	if err != nil {
		return formed{}, false
	}
	g, err := newGrid(p, limitsOf(p))
	if err != nil {
		return formed{}, false
	}
	g.thin(p, sizingPoints)
	list := g.candidates(eval)
	if keep != nil {
		list = append(list, Candidate{Setting: *keep})
	}
	if len(list) > PointsMax {
		return formed{}, false
	}
	eval.evaluateAll(list)
	at := p.best(list)
	if at < 0 {
		at = p.closest(list)
	}
	if at < 0 || list[len(list)-1].Predicted == nil && keep != nil {
		return formed{}, false
	}
	return formed{list[at], list[len(list)-1].Predicted}, true
}

// lengthen moves a document's lognormal lengths: their mean and their tail together, since a longer tail comes with both.
func lengthen(p *Problem, by float64) error {
	l := p.Document.Modelled.Length
	spec := workload.LengthSpec{Kind: l.Kind, MeanTokens: l.MeanTokens * math.Pow(by, meanSpread/tailSpread), Tailness: math.Min(l.Tailness*by, tailMost), CapTokens: l.CapTokens}
	lengths, err := spec.Build()
	if err != nil {
		return fmt.Errorf("plan: lengths moved by %g: %w", by, err)
	}
	d := p.Document
	if d.Hardware.GPU != "" {
		d.Hardware.GPUsPerReplica = p.Machine.GPUsPerReplica
	}
	machine, err := NewMachine(d, lengths)
	if err != nil {
		return nil // so long that they do not fit: what the plan had stays
	}
	p.Machine, p.Lengths = machine, lengths
	return nil
}

// uncertainText asks for the one measurement; "" where the plan hardly turns on any.
func (p *Plan) uncertainText() string {
	if len(p.Uncertain) == 0 || p.Uncertain[0].moves() < uncertainAt {
		return ""
	}
	u := &p.Uncertain[0]
	return fmt.Sprintf("Measure first: %s (±%s), %s.", u.Input, percent(math.Log(u.UpdateHigh/u.UpdateLow)/2), u.Measure)
}
