package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
)

// lossMaxS is the latest end of a planned loss, in seconds from the start: the
// clock of a simulation counts nanoseconds in 63 bits, some 9.2e9 s.
const lossMaxS = 4e9

// engineDownDefault is how long a lost engine is gone, in seconds.
const engineDownDefault = 600

// agentDefaults fills in the sections about what a rollout does beside decoding;
// those that say nothing stay empty.
func (c *Config) agentDefaults() {
	if c.says(c.Modelled.Prefill, "modelled.prefill") {
		orWord(&c.Modelled.Prefill.Mode, "slot")
	}
	if c.says(c.Modelled.Tools, "modelled.tools") {
		orWord(&c.Modelled.Tools.CallsKind, "fixed")
		orWord(&c.Modelled.Tools.Split, "even")
		c.Modelled.Tools.Time = c.timeDefaults(c.Modelled.Tools.Time, "modelled.tools.time")
	}
	if c.says(c.Modelled.Sandbox, "modelled.sandbox") {
		orWord(&c.Modelled.Sandbox.When, "first_call")
		c.Modelled.Sandbox.Start = c.timeDefaults(c.Modelled.Sandbox.Start, "modelled.sandbox.start")
	}
	if c.says(c.Modelled.Verifier, "modelled.verifier") {
		c.Modelled.Verifier.Time = c.timeDefaults(c.Modelled.Verifier.Time, "modelled.verifier.time")
	}
	if c.says(c.Modelled.Scorer, "modelled.scorer") {
		c.Modelled.Scorer.Time = c.timeDefaults(c.Modelled.Scorer.Time, "modelled.scorer.time")
	}
	if c.Modelled.Failures.EngineMTBFS > 0 {
		orNumber(&c.Modelled.Failures.EngineDownS, engineDownDefault, c.given("modelled.failures.engine_down_s"))
	}
}

// says reports whether anything is said about a section.
func (c Config) says(section any, path string) bool {
	_, given := c.givenUnder(path)
	return given || !reflect.ValueOf(section).IsZero()
}

// prefillModes are the keys that a mode of prefill uses beside mode.
var prefillModes = map[string][]string{
	"slot":   {"tokens_per_s", "cache_tokens"},
	"engine": {"tokens_per_s", "cache_tokens"},
	"pool":   {"tokens_per_s", "cache_tokens", "workers"},
}

// agents checks what a rollout does beside decoding.
func (v *validator) agents() {
	c := v.config
	v.decodeCurve()
	v.prefill()
	v.tools()
	v.sandbox()
	if c.says(c.Modelled.Verifier, "modelled.verifier") {
		v.service("modelled.verifier.time", c.Modelled.Verifier.Time)
		v.idle("modelled.verifier.concurrency", c.Modelled.Verifier.Concurrency != 0 && c.Modelled.Verifier.Time.Kind == "none",
			"without a time of a verdict", "modelled.verifier.time, or leave it out")
	}
	if s := c.Modelled.Scorer; c.says(s, "modelled.scorer") {
		v.service("modelled.scorer.time", s.Time)
		v.idle("modelled.scorer.concurrency", s.Concurrency != 0 && s.Time.Kind == "none" && s.TokensPerS == 0,
			"without a time of a score", "modelled.scorer.tokens_per_s or modelled.scorer.time, or leave it out")
	}
	v.drift()
	v.faults()
	if e := c.Evaluate; c.Modelled.Evaluate.Occupies == "engines" || c.Modelled.Evaluate.Occupies == "trainer" {
		v.idle("modelled.evaluate.occupies", e.Every == 0, "with evaluate.every 0: nothing is evaluated before the end", "evaluate.every of at least 1, or none")
	} else {
		v.idle("modelled.evaluate.time_s", c.Modelled.Evaluate.TimeS > 0, "while an evaluation occupies nothing", "modelled.evaluate.occupies engines or trainer, or leave it out")
	}
}

// idle refuses a key that has no effect.
func (v *validator) idle(key string, unused bool, why, allowed string) {
	if unused {
		v.fail(key, nil, "has no effect "+why, allowed)
	}
}

// service checks a model of a time.
func (v *validator) service(path string, s TimeModel) {
	if !v.unused(path, "kind", s.Kind, serviceKeys) {
		v.model(path, s.spec().Validate())
	}
}

func (v *validator) decodeCurve() {
	curve := v.config.Modelled.DecodeCurve
	if len(curve) == 0 {
		return
	}
	for _, other := range []struct {
		key   string
		speed float64
	}{{"decode_tokens_per_s", v.config.Modelled.DecodeTokensPerS}, {"throughput_tokens_per_s", v.config.Modelled.ThroughputTokensPerS}} {
		if other.speed != 0 {
			v.fail("modelled."+other.key, other.speed, "says again what modelled.decode_curve says", "one of the two")
		}
	}
	for i := 1; i < len(curve); i++ {
		if curve[i].Active <= curve[i-1].Active {
			v.fail(fmt.Sprintf("modelled.decode_curve.%d.active", i), curve[i].Active, fmt.Sprintf("does not follow %d", curve[i-1].Active), "points in rising order")
		}
	}
}

func (v *validator) prefill() {
	c := v.config
	p := c.Modelled.Prefill
	if !c.says(p, "modelled.prefill") || v.unused("modelled.prefill", "mode", p.Mode, prefillModes) {
		return
	}
	switch {
	case p.TokensPerS == 0:
		v.fail("modelled.prefill", nil, "does not say how fast it reads", "tokens_per_s")
	case p.Mode == "pool" && p.Workers == 0:
		v.fail("modelled.prefill.mode", p.Mode, "does not say how many workers the pool has", "modelled.prefill.workers of at least 1")
	case c.Modelled.Sync.PrefillTokensPerS > 0:
		v.fail("modelled.sync.prefill_tokens_per_s", c.Modelled.Sync.PrefillTokensPerS, "says again what modelled.prefill says, which holds for resumed rollouts, too", "one of the two")
	}
}

func (v *validator) tools() {
	t := v.config.Modelled.Tools
	if !v.config.says(t, "modelled.tools") {
		return
	}
	if t.Calls == 0 {
		if key, given := v.config.givenUnder("modelled.tools"); given && key != "modelled.tools.calls" && !v.config.given("modelled.tools.calls") {
			v.idle(key, true, "without calls", "modelled.tools.calls above 0, or leave it out")
		}
		return
	}
	v.service("modelled.tools.time", t.Time)
	v.model("modelled.tools", t.spec().Validate())
	if t.CallsKind == "fixed" && t.CallsMax > 0 && t.Calls > float64(t.CallsMax) {
		v.fail("modelled.tools.calls_max", t.CallsMax, fmt.Sprintf("is below modelled.tools.calls (%s), which every rollout makes with calls_kind fixed", number(t.Calls)),
			fmt.Sprintf("at least %.0f, or calls_kind poisson or geometric", math.Ceil(t.Calls)))
	}
	v.idle("modelled.tools.retries", t.Retries > 0 && t.FailureRate == 0, "where no call fails", "modelled.tools.failure_rate above 0, or leave it out")
	v.idle("modelled.tools.concurrency", t.Concurrency > 0 && t.Time.Kind == "none", "where a call takes no time", "modelled.tools.time, or leave it out")
}

func (v *validator) sandbox() {
	c := v.config
	s := c.Modelled.Sandbox
	if !c.says(s, "modelled.sandbox") {
		return
	}
	v.service("modelled.sandbox.start", s.Start)
	if s.When == "first_call" && c.Modelled.Tools.Calls == 0 && c.Modelled.Environment.Kind == "none" {
		v.fail("modelled.sandbox", nil, "has no effect: nothing runs in it", "modelled.tools.calls above 0, modelled.environment, or when rollout")
	}
	v.idle("modelled.sandbox.mtbf_s", s.MTBFS > 0 && c.Modelled.Tools.Calls == 0 && c.Modelled.Environment.Kind == "none",
		"where nothing runs in the sandbox", "modelled.tools.calls above 0 or modelled.environment, or leave it out")
	takes := s.Start.Kind != "none"
	v.idle("modelled.sandbox.warm", s.Warm > 0 && !takes, "where a start takes no time", "modelled.sandbox.start, or leave it out")
	v.idle("modelled.sandbox.reset_s", s.ResetS > 0 && s.Uses < 2, "where no sandbox is used again", "modelled.sandbox.uses of at least 2, or leave it out")
	v.idle("modelled.sandbox.start_concurrency", s.StartConcurrency > 0 && !takes, "where a start takes no time", "modelled.sandbox.start, or leave it out")
	v.idle("modelled.sandbox.start_timeout_s", s.StartTimeoutS > 0 && !takes, "where a start takes no time", "modelled.sandbox.start, or leave it out")
	v.idle("modelled.sandbox.retries", s.Retries > 0 && s.FailureRate == 0 && s.StartTimeoutS == 0, "where no start fails", "failure_rate or start_timeout_s, or leave it out")
	if s.Start.Kind == "fixed" && s.StartTimeoutS > 0 && s.StartTimeoutS < s.Start.MeanS {
		v.fail("modelled.sandbox.start_timeout_s", s.StartTimeoutS, fmt.Sprintf("is below the time of every start (%s s): none would ever be up, and nothing be trained", number(s.Start.MeanS)),
			"at least modelled.sandbox.start.mean_s")
	}
}

func (v *validator) drift() {
	c := v.config
	d := c.Rollout.Drift
	still := d.ToolCallsFactor == 0 && d.LengthFactor == 0 && d.EnvironmentFactor == 0 && d.StepFactor == 0
	if !still && d.Steps == 0 {
		v.fail("rollout.drift", nil, "does not say in how many train steps", "rollout.drift.steps of at least 1")
	}
	const factor = "length_factor, tool_calls_factor, environment_factor or step_factor, or leave it out"
	v.idle("rollout.drift.steps", d.Steps > 0 && still, "without a factor", factor)
	v.idle("rollout.drift.begin", d.Begin > 0 && still, "without a factor", factor)
	v.idle("rollout.drift.tool_calls_factor", d.ToolCallsFactor > 0 && c.Modelled.Tools.Calls == 0, "where no tool is called", "modelled.tools.calls above 0, or leave it out")
	v.idle("rollout.drift.environment_factor", d.EnvironmentFactor > 0 && c.Modelled.Environment.Kind == "none", "where the environment takes no time", "modelled.environment, or leave it out")
}

func (v *validator) faults() {
	f := v.config.Failures
	v.idle("modelled.failures.engine_down_s", v.config.Modelled.Failures.EngineDownS > 0 && v.config.Modelled.Failures.EngineMTBFS == 0, "where no engine is lost", "modelled.failures.engine_mtbf_s, or leave it out")
	var names []string
	for _, engine := range v.config.Engines {
		names = append(names, engine.Name)
	}
	gone := map[string]bool{}
	for i, loss := range f.EnginePlan {
		key := fmt.Sprintf("failures.engine_plan.%d.", i)
		switch {
		case !slices.Contains(names, loss.Engine):
			err := v.config.problem(key+"engine", valueText(loss.Engine), "is no engine of the document", strings.Join(names, ", "))
			err.Nearest = spelling.Nearest(loss.Engine, names)
			v.errs = append(v.errs, err)
		case loss.AtStep == 0 && loss.BackStep > 0:
			v.fail(key+"back_step", loss.BackStep, "has no effect without at_step", "at_step, or down_s in place of it")
		case loss.AtStep > 0 && (loss.AtS > 0 || loss.DownS > 0):
			v.fail(key+"at_step", loss.AtStep, "says by train steps what at_s or down_s says in seconds", "at_step and back_step, or at_s and down_s")
		case loss.BackStep > 0 && loss.BackStep <= loss.AtStep:
			v.fail(key+"back_step", loss.BackStep, fmt.Sprintf("is not after at_step (%d)", loss.AtStep), fmt.Sprintf("at least %d", loss.AtStep+1))
		case loss.DownS == 0 && loss.BackStep == 0:
			gone[loss.Engine] = true
		case loss.AtS+loss.DownS > lossMaxS:
			v.fail(key+"down_s", loss.DownS, fmt.Sprintf("ends %s s after the start, later than a simulation can last", number(loss.AtS+loss.DownS)),
				fmt.Sprintf("at most %s, or 0 for good", number(lossMaxS-loss.AtS)))
		}
	}
	if len(gone) == len(names) {
		v.fail("failures.engine_plan", nil, "loses every engine for good: nothing would be generated any more", "down_s above 0 for one of them")
	} else if step := f.allGone(names); step > 0 {
		v.fail("failures.engine_plan", nil, fmt.Sprintf("has every engine gone after train step %d: no further step would bring one back", step), "one engine that is there at every step")
	}
}

// allGone is the first train step after which every engine is gone by its plan, 0 for none.
func (f Failures) allGone(names []string) int {
	first := 0
	for _, at := range f.EnginePlan {
		gone := map[string]bool{}
		for _, l := range f.EnginePlan {
			if l.AtStep > 0 && l.AtStep <= at.AtStep && (l.BackStep == 0 || l.BackStep > at.AtStep) {
				gone[l.Engine] = true
			}
		}
		if at.AtStep > 0 && len(gone) == len(names) && (first == 0 || at.AtStep < first) {
			first = at.AtStep
		}
	}
	return first
}

// agentWarnings name what of a rollout's services changes nothing, or ends a run.
func (c Config) agentWarnings(warn func(key, format string, args ...any)) {
	r := c.Rollout
	if c.Modelled.Prefill.TokensPerS == 0 && c.Modelled.Sync.PrefillTokensPerS == 0 {
		if c.Modelled.PromptTokens > 0 {
			warn("modelled.prompt_tokens", "%d takes no time: modelled.prefill.tokens_per_s says how fast prompts are read", c.Modelled.PromptTokens)
		}
		if c.Modelled.Tools.OutputTokens > 0 {
			warn("modelled.tools.output_tokens", "%d takes no time: modelled.prefill.tokens_per_s says how fast they are read", c.Modelled.Tools.OutputTokens)
		}
	}
	if rate, tries := c.Modelled.Train.FailureRate, c.Failures.TrainAttempts; rate > 0 {
		steps := float64(c.Steps.Warmup + c.Steps.Measured)
		if ends := -math.Expm1(steps * math.Log1p(-math.Pow(rate, float64(tries)))); ends > 0.01 {
			warn("modelled.train.failure_rate", "%s ends a simulation of %.0f steps early with a probability of %.2g: a step may fail failures.train_attempts (%d) times in a row", number(rate), steps, ends, tries)
		}
	}
	if s := c.Modelled.Sandbox; s.Limit > 0 && s.Limit < r.Concurrency && s.When == "rollout" {
		warn("modelled.sandbox.limit", "%d is below rollout.concurrency (%d): that many slots wait for a sandbox and generate nothing, and no more than %d rollouts are under way", s.Limit, r.Concurrency, s.Limit)
	}
}
