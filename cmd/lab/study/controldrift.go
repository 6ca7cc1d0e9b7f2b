package study

import (
	"math"
	"sync"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// ControlDrift is what changes under a run: nothing at first, then all of it in the
// course of the run's middle, and nothing again.
type ControlDrift struct {
	// Name of the drift, and What changes in it, in words.
	Name string `json:"name"`
	What string `json:"what"`
	// Abrupt: it is all there at once, and is undone at the end of the middle.
	Abrupt bool `json:"abrupt,omitempty"`
	// Calls says that every rollout calls tools, which takes twenty times as long to simulate. So the
	// oracle's search is shorter, and all worlds are those of a constant speed.
	Calls bool `json:"calls,omitempty"`
}

// Names of the drifts.
const (
	driftLengths = "lengths"
	driftTools   = "tools"
	driftSolve   = "solve"
	driftEngines = "engines"
	driftStep    = "step"
)

// ControlDrifts are those of the study.
var ControlDrifts = []ControlDrift{
	{Name: driftLengths, What: "responses grow to three times their length"},
	{Name: driftTools, What: "tool calls go from 20 to 51 a rollout, 2 s each", Calls: true},
	{Name: driftSolve, What: "the solve rate goes from 0.1 to 0.9, groups whose rewards are equal filtered"},
	{Name: driftEngines, What: "half the engines are lost at once, and come back at once", Abrupt: true},
	{Name: driftStep, What: "train steps come to take 30 % longer"},
}

// Ends of the drifts.
const (
	lengthsTo   = 3
	toolsFrom   = 20
	toolsTo     = 51
	toolS       = 2
	solveFrom   = 0.1
	solveTo     = 0.9
	solveSpread = 1
	stepTo      = 1.3
)

// course is how a run goes: flat for begin train steps, drifting for the next ones, flat for the rest. With
// frozen, all of it stands at one level of the drift, from 0 to 1.
type course struct {
	begin, drifting, rest int
	// settle is the number of steps that count for nothing, from the start and from an abrupt change on.
	settle int
	frozen bool
	level  float64
}

// steps is how many there are.
func (c course) steps() int { return c.begin + c.drifting + c.rest }

// levelAt is how much of a drift has happened when a version has been made.
func (d ControlDrift) levelAt(c course, made int) float64 {
	switch {
	case c.frozen:
		return c.level
	case made < c.begin:
		return 0
	case !d.Abrupt:
		return min(float64(made-c.begin)/float64(c.drifting), 1)
	case made < c.begin+c.drifting:
		return 1
	}
	return 0
}

// levels are the points of a drift for which settings are searched.
func (d ControlDrift) levels(n int) []float64 {
	if d.Abrupt {
		return []float64{0, 1}
	}
	if d.Calls {
		n = n/2 + 1
	}
	levels := make([]float64, n)
	for i := range levels {
		levels[i] = float64(i) / float64(n-1)
	}
	return levels
}

// settled reports whether the step that makes a version counts: neither the start nor an abrupt change
// is less than settle steps ago.
func (d ControlDrift) settled(c course, made int) bool {
	if made <= c.settle {
		return false
	}
	if !d.Abrupt || c.frozen {
		return true
	}
	for _, change := range []int{c.begin, c.begin + c.drifting} {
		if made > change && made <= change+c.settle {
			return false
		}
	}
	return true
}

// driftParts are what a drift makes of a workload.
type driftParts struct {
	change workload.Change
	tools  *workload.Tools
	solve  *workload.Solve
	// acceptance is the share of groups at the start whose rewards are not all equal.
	acceptance float64
	losses     []sim.EngineLoss
}

// parts builds a drift for a course.
func (d ControlDrift) parts(c course) (p driftParts, err error) {
	change := workload.ChangeSpec{Begin: c.begin, Steps: c.drifting}
	factor := func(to float64) float64 { return to }
	if c.frozen { // reached with the first version
		change.Begin, change.Steps = 0, 1
		factor = func(to float64) float64 { return 1 + c.level*(to-1) }
	}
	switch d.Name {
	case driftLengths:
		change.LengthFactor = factor(lengthsTo)
	case driftTools:
		change.ToolCallsFactor = factor(float64(toolsTo) / toolsFrom)
		spec := workload.ToolsSpec{Calls: toolsFrom, CallsKind: workload.KindPoisson,
			Time: workload.TimesSpec{Kind: workload.KindLognormal, MeanS: toolS, Tailness: controlTailness}}
		if p.tools, err = spec.Build(); err != nil {
			return p, err
		}
	case driftSolve:
		if err := p.solving(c); err != nil {
			return p, err
		}
	case driftEngines:
		p.losses = engineLosses(c)
	case driftStep:
		change.StepFactor = factor(stepTo)
	}
	p.change, err = change.Build(0)
	return p, err
}

// solving has the solve rate go from one end to the other, as a skill that grows in a straight line.
func (p *driftParts) solving(c course) (err error) {
	from, to := skillBefore(), skillAfter()
	spec := workload.SolveSpec{Kind: workload.KindLogistic, Begin: c.begin, Steps: c.drifting, From: from, To: to, Spread: solveSpread}
	start := spec
	start.To, start.Begin, start.Steps = from, 0, 0
	if c.frozen {
		spec.From = from + c.level*(to-from)
		spec.To, spec.Begin, spec.Steps = spec.From, 0, 0
	}
	if p.solve, err = spec.Build(); err != nil {
		return err
	}
	before, err := start.Build()
	if err != nil {
		return err
	}
	p.acceptance = before.Share(controlGroupSize, 1, controlGroupSize-1, 0, 0)
	return nil
}

// skillBefore and skillAfter are the skills at the ends of the drift.
var (
	skillBefore = sync.OnceValue(func() float64 { return skillOf(solveFrom) })
	skillAfter  = sync.OnceValue(func() float64 { return skillOf(solveTo) })
)

// skillOf is the skill, in logits, at which prompts of the study's spread are solved at a rate.
func skillOf(rate float64) float64 {
	low, high := -20.0, 20.0
	for range 40 {
		mid := (low + high) / 2
		solve, err := workload.SolveSpec{Kind: workload.KindLogistic, From: mid, To: mid, Spread: solveSpread}.Build()
		if err != nil {
			return math.NaN()
		}
		if solve.Rate(0, 0) < rate {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// engineLosses takes every second engine away.
func engineLosses(c course) (losses []sim.EngineLoss) {
	at, back := loop.Version(c.begin), loop.Version(c.begin+c.drifting)
	if c.frozen {
		at, back = 1, 0
		if c.level == 0 {
			return nil
		}
	}
	for e := range controlEngines / 2 {
		losses = append(losses, sim.EngineLoss{Engine: 2 * e, AtStep: at, BackStep: back})
	}
	return losses
}
