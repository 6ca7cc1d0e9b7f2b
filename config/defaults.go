package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
)

// The defaults of a document, by key. What follows from other keys is in
// WithDefaults.
const (
	groupSizeDefault    = 8
	batchGroupsDefault  = 16
	meanTokensDefault   = 1400
	tailnessDefault     = 50
	capTokensDefault    = 8080
	heldOutDefault      = 1000
	evaluatedDefault    = 200
	warmRateDefault     = 3e-4 // behind a supervised warm-up, which the full rate undoes
	simulatedSpeed      = 50   // tokens per second of one slot
	synchronousSchedule = "synchronous"
)

// The settings that train the task reverse from scratch, with the defaults beside them.
// Measured with the transformer's default shape on seeds 1 to 8, no group filtered, steps
// until the held-out greedy accuracy first passed 0.97 (looked at every 50 steps):
//
//	batch 128, lag 4            350 to 450
//	batch 128, lag 10           450 to 550
//	batch  64, lag 4            450 to 600
//	batch 128, lag 4, rate 2e-3 250 to 350
//
// The higher rate is quicker but breaks the estimator on the way: its clip
// fraction, over the worst 50 steps, is 0.31 to 0.36 on seeds 1 to 3, against 0.18
// to 0.20.
const (
	learningRateDefault = 1e-3
	trainStepsDefault   = 600 // with a third to spare
)

// warmupDefault is enough for most answers of the task addition to be right: by simulation
// at a lag of 3, steps of 64 demonstrations and of 128 rollouts, it leaves a held-out accuracy
// of 0.87 to 0.98, which reinforcement learning raises to 0.96 and more in 1,500
// steps at a learning rate of 3e-4; at 1e-3 those steps make a good start worse.
// 300 would leave 0.01, which it raises to no more than 0.08.
const warmupDefault = 1200

// WithDefaults returns a copy in which every key that was not given and has a
// default holds it. It may be applied twice. It does not check anything: see
// [Config.Validate].
func (c Config) WithDefaults() Config {
	c = c.clone()
	c.replicateEngines()
	c.presetDefaults()
	orSeed(&c.Seed, 1, c.given("seed"))
	orWord(&c.Schedule, "asynchronous")
	c.verlDefaults()
	c.sessionsDefaults()
	c.rolloutDefaults()
	c.queueDefaults()
	c.syncDefaults()
	c.filterDefaults()
	c.controlDefaults()
	orCount(&c.Steps.Warmup, 300, c.given("steps.warmup"))
	orCount(&c.Steps.Measured, 1500, c.given("steps.measured"))
	c.learningDefaults()
	c.storeDefaults()
	c.playedDefaults()
	c.agentDefaults()
	c.planningDefaults()
	return c
}

// rolloutDefaults fills in rollout, train and engines, which depend on one
// another.
func (c *Config) rolloutDefaults() {
	orCount(&c.Rollout.GroupSize, groupSizeDefault, c.given("rollout.group_size"))
	c.fleetDefaults()
	// Behind a group size that Validate will refuse, nothing must overflow.
	group := min(max(c.Rollout.GroupSize, 1), 1<<16)
	orCount(&c.Train.Batch, batchGroupsDefault*group, c.given("train.batch"))
	slots := 0
	for _, engine := range c.Engines {
		slots += engine.Slots
	}
	slots = cmp.Or(slots, max(c.Train.Batch, 1))
	orCount(&c.Rollout.Concurrency, slots, c.given("rollout.concurrency"))
	orWord(&c.Rollout.Start, "stream")
	orNumber(&c.Rollout.Oversample, 1, c.given("rollout.oversample"))
	orWord(&c.Rollout.Partial.Interrupt, "none")
	orWord(&c.Rollout.Prune.Check, "none")
	c.solveDefaults()
	c.engineDefaults()
	c.Modelled.Length = c.lengthDefaults(c.Modelled.Length)

	c.environmentTimeDefaults()
}

// environmentTimeDefaults has a simulation reckon with the time that a run waits, unless the
// document models another. Nothing goes the other way.
func (c *Config) environmentTimeDefaults() {
	const modelled, live = "modelled.environment", "environment.service_time"
	c.Environment.ServiceTime = c.timeDefaults(c.Environment.ServiceTime, live)
	if _, given := c.givenUnder(modelled); given || !c.Modelled.Environment.isZero() || c.Modelled.Environment.CapS > 0 {
		c.Modelled.Environment = c.timeDefaults(c.Modelled.Environment, modelled)
		return
	}
	for _, known := range fieldsOf(reflect.TypeFor[TimeModel]()) {
		if at, ok := c.origin.places[join(live, known.key)]; ok {
			c.origin.places[join(modelled, known.key)] = at
		}
	}
	c.Modelled.Environment = c.Environment.ServiceTime
}

// isZero reports whether nothing is said about a service time.
func (s TimeModel) isZero() bool { return s.Kind == "" && !s.isMeasured() && s.MeanS == 0 }

// isMeasured reports whether a service time is given by measurements.
func (s TimeModel) isMeasured() bool { return s.File != "" || len(s.Groups) > 0 }

// engineDefaults divides the concurrency over the engines that say no slots.
func (c *Config) engineDefaults() {
	if len(c.Engines) == 0 {
		c.Engines = []Engine{{Slots: c.Rollout.Concurrency}}
		c.origin.forget("engines")
	}
	if c.overridden("rollout.concurrency") && !c.overridden("engines") {
		for i := range c.Engines {
			c.Engines[i].Slots = 0
			c.origin.forget(fmt.Sprintf("engines.%d.slots", i))
		}
	}
	open, left := 0, c.Rollout.Concurrency
	for i, engine := range c.Engines {
		if engine.Slots == 0 && !c.given(fmt.Sprintf("engines.%d.slots", i)) {
			open++
		}
		left -= engine.Slots
	}
	for i := range c.Engines {
		engine := &c.Engines[i]
		if engine.Slots == 0 && !c.given(fmt.Sprintf("engines.%d.slots", i)) {
			engine.Slots = max(left/open, 1)
			left -= engine.Slots
			open--
		}
		orWord(&engine.Kind, "embedded")
		orWord(&engine.Name, fmt.Sprintf("engine-%d", i))
		engine.serverDefaults()
		if engine.Kind == kindTinker {
			orCount(&engine.PieceTokens, pieceTokensDefault, c.given(fmt.Sprintf("engines.%d.piece_tokens", i)))
		}
	}
}

// lengthDefaults fills in a length model and drops what its kind does not use
// where an override chose the kind.
func (c *Config) lengthDefaults(l Length) Length {
	const path = "modelled.length"
	measured := l.File != "" || len(l.Groups) > 0
	untouched := l.Kind == "" && !measured && l.MeanTokens == 0 && l.Tailness == 0 && l.CapTokens == 0
	if l.Kind == "" {
		l.Kind = "lognormal"
		if measured {
			l.Kind = "empirical"
		}
	}
	if l.Kind != "empirical" {
		orNumber(&l.MeanTokens, meanTokensDefault, c.given(path+".mean_tokens"))
	}
	if l.Kind == "lognormal" && !c.given(path+".tailness") && l.Tailness == 0 {
		l.Tailness = tailnessDefault
	}
	if untouched && !c.given(path+".cap_tokens") && !c.given(path+".tailness") {
		l.CapTokens = capTokensDefault
	}
	c.dropReplaced(&l, path, path+".kind", lengthKeys[l.Kind])
	return l
}

// timeDefaults is lengthDefaults for a service time.
func (c *Config) timeDefaults(s TimeModel, path string) TimeModel {
	if s.Kind == "" {
		switch {
		case s.isMeasured():
			s.Kind = "empirical"
		case s.MeanS > 0 && (s.Tailness > 0 || c.given(path+".tailness")):
			s.Kind = "lognormal"
		case s.MeanS > 0:
			s.Kind = "fixed"
		default:
			s.Kind = "none"
		}
	}
	if s.Kind == "lognormal" && !c.given(path+".tailness") && s.Tailness == 0 {
		s.Tailness = tailnessDefault
	}
	c.dropReplaced(&s, path, path+".kind", serviceKeys[s.Kind])
	return s
}

// lengthKeys and serviceKeys are the keys each kind uses beside kind.
var (
	lengthKeys = map[string][]string{
		"fixed":       {"mean_tokens", "cap_tokens", "prompt_sigma"},
		"lognormal":   {"mean_tokens", "cap_tokens", "tailness", "prompt_sigma"},
		"exponential": {"mean_tokens", "cap_tokens", "prompt_sigma"},
		"pareto":      {"mean_tokens", "cap_tokens", "alpha", "prompt_sigma"},
		"empirical":   {"file", "groups", "cap_tokens", "prompt_sigma"},
	}
	serviceKeys = map[string][]string{
		"none":        {},
		"fixed":       {"mean_s", "cap_s"},
		"lognormal":   {"mean_s", "cap_s", "tailness"},
		"exponential": {"mean_s", "cap_s"},
		"empirical":   {"file", "groups", "cap_s"},
	}
	solveKeys = map[string][]string{
		"none":     {},
		"fixed":    {"rate"},
		"logistic": {"begin", "from", "to", "steps", "levels", "spread"},
	}
	queueKeys = map[string][]string{
		"drop":    {"factor", "capacity", "select", "hold", "hold_adaptive", "hold_cost", "pause_at"},
		"max":     {"factor", "capacity", "select", "hold", "hold_adaptive", "hold_cost", "pause_at", "max_staleness", "abort"},
		"block":   {"factor", "capacity", "select", "hold", "hold_adaptive", "hold_cost", "pause_at"},
		"bounded": {"factor", "capacity", "select", "hold", "hold_adaptive", "hold_cost", "pause_at", "eta"},
		"threshold": {"factor", "capacity", "select", "hold", "hold_adaptive", "hold_cost", "pause_at", "staleness_threshold",
			"trigger_parameter_sync_step", "require_batches", "ppo_mini_batch_size", "partial_rollout", "use_rollout_log_probs",
			"total_rollout_steps", "test_freq", "train_batch_size", "gen_batch_size", "rollout", "trainer"},
		"replay": {"factor", "capacity", "hold", "hold_adaptive", "hold_cost", "pause_at", "max_staleness", "evict", "gamma", "balance", "max_uses"},
	}
	correctionKeys = map[string][]string{
		"ppo-clip":      {"epsilon_low", "epsilon_high", "version_mask", "version_lag", "max_spans"},
		"none":          {"epsilon_low", "epsilon_high", "version_mask", "version_lag", "max_spans"},
		"decoupled-ppo": {"epsilon_low", "epsilon_high", "version_mask", "version_lag", "max_spans", "floor", "cap", "drop_over_cap", "drop_under_floor"},
		"tis":           {"epsilon_low", "epsilon_high", "version_mask", "version_lag", "max_spans", "floor", "cap", "drop_over_cap", "drop_under_floor", "level"},
		"token-mask":    {"epsilon_low", "epsilon_high", "version_mask", "version_lag", "max_spans", "low", "high"},
		"sequence-mask": {"epsilon_low", "epsilon_high", "version_mask", "version_lag", "max_spans", "low", "high", "metric", "max_kl", "negative_only"},
		"cispo":         {"epsilon_low", "epsilon_high", "version_mask", "version_lag", "max_spans"},
		"dppo":          {"epsilon_low", "epsilon_high", "version_mask", "version_lag", "max_spans", "difference_low", "difference_high", "penalty"},
	}
)

// dropReplaced clears the keys of a section that the value of its chooser (kind
// or policy) does not use, where the chooser outranks the key: an override
// changed what the document is about. Elsewhere Validate refuses the pair.
func (c *Config) dropReplaced(section any, path, chooser string, used []string) {
	target := reflect.ValueOf(section).Elem()
	if used == nil {
		return // an unknown word: reported as that
	}
	for _, known := range fieldsOf(target.Type()) {
		full := join(path, known.key)
		if full == chooser || slices.Contains(used, known.key) {
			continue
		}
		if said, ok := c.givenUnder(full); ok && c.given(chooser) && c.origin.places[said].rank < c.origin.places[chooser].rank {
			target.Field(known.index).SetZero()
			c.origin.forget(full)
		}
	}
}

// queueDefaults fills in the queue. The synchronous schedule replaces it: one
// batch, nothing dropped.
func (c *Config) queueDefaults() {
	if c.Schedule == synchronousSchedule {
		c.replace("queue", Queue{Policy: "block", Factor: 1, Select: "oldest"})
		return
	}
	c.boundDefaults()
	orWord(&c.Queue.Policy, "drop")
	c.dropReplaced(&c.Queue, "queue", "queue.policy", queueKeys[c.Queue.Policy])
	c.dropCapacity()
	c.keepOverride("queue.capacity", &c.Queue.Capacity, "queue.factor", &c.Queue.Factor)
	sized := c.Queue.Capacity != 0 || c.given("queue.capacity")
	switch c.Queue.Policy {
	case "bounded", "threshold": // what they admit: QueueGroups
	case "replay":
		orWord(&c.Queue.Evict, "version")
		if c.Queue.Evict == "drift" {
			orNumber(&c.Modelled.Train.DriftNatsPerVersion, 0.01, c.given("modelled.train.drift_nats_per_version"))
			orNumber(&c.Modelled.Train.DriftSpread, 0.3, c.given("modelled.train.drift_spread"))
		}
		orNumber(&c.Queue.Gamma, 0.95, c.given("queue.gamma"))
		orCount(&c.Queue.MaxUses, 2, c.given("queue.max_uses"))
		if !sized {
			orNumber(&c.Queue.Factor, 4, c.given("queue.factor"))
		}
	default:
		if !sized {
			orNumber(&c.Queue.Factor, 1, c.given("queue.factor"))
		}
	}
	if c.Queue.Policy != "replay" { // which draws
		orWord(&c.Queue.Select, "oldest")
	}
}

// dropCapacity clears a capacity that was another policy's: where an override
// chose one whose capacity follows from what it admits, or is a buffer.
func (c *Config) dropCapacity() {
	switch c.Queue.Policy {
	case "bounded", "threshold", "replay":
	default:
		return
	}
	chosen, ok := c.rankOf("queue.policy")
	if at, given := c.rankOf("queue.factor"); ok && given && at < chosen {
		c.Queue.Factor = 0
		c.origin.forget("queue.factor")
	}
	if at, given := c.rankOf("queue.capacity"); ok && given && at < chosen {
		c.Queue.Capacity = 0
		c.origin.forget("queue.capacity")
	}
}

// filterDefaults fills in which groups teach nothing, and the curriculum.
func (c *Config) filterDefaults() {
	orNumber(&c.Modelled.Filter.Acceptance, 1, c.given("modelled.filter.acceptance"))
	band, aim := &c.Filter.SolveRate, &c.Filter.Curriculum
	if band.Drop || aim.Levels > 0 {
		band.Low = c.firstOf(band.Low, "filter.solve_rate.low", aim.Low, "filter.curriculum.low", 0.1)
		band.High = c.firstOf(band.High, "filter.solve_rate.high", aim.High, "filter.curriculum.high", 0.9)
	}
	if aim.Levels > 0 {
		orNumber(&aim.Low, band.Low, c.given("filter.curriculum.low"))
		orNumber(&aim.High, band.High, c.given("filter.curriculum.high"))
		orNumber(&aim.Explore, 0.1, c.given("filter.curriculum.explore"))
	}
}

// bandKey returns the key that says an end of the band, low or high: the
// filter's, or the curriculum's where that is given more strongly, or alone.
func (c Config) bandKey(end string) string {
	path, other := "filter.solve_rate."+end, "filter.curriculum."+end
	at, given := c.rankOf(path)
	if otherAt, otherGiven := c.rankOf(other); otherGiven && c.given(other) && (!c.given(path) || given && otherAt > at) {
		return other
	}
	return path
}

// firstOf returns the value that was given, the first before the other, or the fallback.
func (c *Config) firstOf(value float64, path string, other float64, otherPath string, fallback float64) float64 {
	at, given := c.rankOf(path)
	otherAt, otherGiven := c.rankOf(otherPath)
	switch {
	case given && !(otherGiven && otherAt > at):
		return value
	case otherGiven:
		return other
	}
	return fallback
}

// solveDefaults fills in the model of rewards.
func (c *Config) solveDefaults() {
	const path = "modelled.solve"
	s := &c.Modelled.Solve
	if s.Kind == "" {
		switch {
		case s.Begin != 0 || s.From != 0 || s.To != 0 || s.Steps != 0 || len(s.Levels) != 0 || s.Spread != 0:
			s.Kind = "logistic"
		case s.Rate != 0 || c.given(path+".rate"):
			s.Kind = "fixed"
		default:
			s.Kind = "none"
		}
	}
	if s.Kind == "logistic" {
		orNumber(&s.To, s.From, c.given(path+".to"))
	}
	c.dropReplaced(s, path, path+".kind", solveKeys[s.Kind])
}

// correctionDefaults fills in what a train step does about stale tokens. What
// its numbers default to is the trainer's to say.
func (c *Config) correctionDefaults() {
	const path = "trainer.correction"
	orWord(&c.Trainer.Correction.Kind, "ppo-clip")
	orWord(&c.Trainer.Correction.VersionMask, "all")
	c.dropReplaced(&c.Trainer.Correction, path, path+".kind", correctionKeys[c.Trainer.Correction.Kind])
}

// syncDefaults fills in the weight sync, and drops alternatives that an
// override replaced.
func (c *Config) syncDefaults() {
	if c.Schedule != synchronousSchedule && c.Queue.Policy == "threshold" {
		orWord(&c.Sync.Mode, "restart") // verl's partial_rollout, true by default
	}
	orWord(&c.Sync.Mode, "in_flight")
	orCount(&c.Sync.Every, 1, c.given("sync.every"))
	orWord(&c.Sync.Trainer, "free")
	orWord(&c.Sync.Switch, "fleet")
	if c.Schedule == synchronousSchedule {
		// The next groups open at the next served version, so every step syncs.
		c.replace("sync.every", 1)
	}
	c.keepOverride("modelled.decode_tokens_per_s", &c.Modelled.DecodeTokensPerS,
		"modelled.throughput_tokens_per_s", &c.Modelled.ThroughputTokensPerS)
	c.keepOverride("modelled.train.utilization", &c.Modelled.Train.Utilization, "modelled.train.step_s", &c.Modelled.Train.StepS)
	c.keepOverride("modelled.train.utilization", &c.Modelled.Train.Utilization, "modelled.train.throughput_tokens_per_s", &c.Modelled.Train.ThroughputTokensPerS)
	c.keepOverride("modelled.train.step_s", &c.Modelled.Train.StepS, "modelled.train.throughput_tokens_per_s", &c.Modelled.Train.ThroughputTokensPerS)
}

// keepOverride resolves two keys that exclude each other when one of them comes
// from an override: the override is what the user wants.
func (c *Config) keepOverride(path string, value any, other string, otherValue any) {
	if !c.given(path) || !c.given(other) || c.together(path, other) {
		return
	}
	lose, loser := other, otherValue
	if c.origin.places[other].rank > c.origin.places[path].rank {
		lose, loser = path, value
	}
	reflect.ValueOf(loser).Elem().SetZero()
	c.origin.forget(lose)
}

// learningDefaults fills in the sections about what a run learns and how.
func (c *Config) learningDefaults() {
	orCount(&c.Model.Layers, 2, c.given("model.layers"))
	orCount(&c.Model.Width, 64, c.given("model.width"))
	orCount(&c.Model.Heads, 4, c.given("model.heads"))
	orCount(&c.Model.Context, 16, c.given("model.context"))

	orWord(&c.Environment.Task, "reverse")
	orCount(&c.Environment.LettersMin, 2, c.given("environment.letters_min"))
	orCount(&c.Environment.LettersMax, 5, c.given("environment.letters_max"))
	if c.Environment.Task == "addition" { // from scratch it does not find its first carry
		orCount(&c.Environment.SupervisedSteps, warmupDefault, c.given("environment.supervised_steps"))
	}
	orCount(&c.Environment.HeldOut, heldOutDefault, c.given("environment.held_out"))

	c.partDefaults()
	orCount(&c.Trainer.Steps, trainStepsDefault, c.given("trainer.steps"))
	rate := learningRateDefault
	switch {
	case c.Trainer.Kind == kindTinker:
		rate = adapterRateDefault
	case c.Environment.Task == "addition":
		rate = warmRateDefault
	}
	orNumber(&c.Trainer.LearningRate, rate, c.given("trainer.learning_rate"))
	orNumber(&c.Trainer.ClipEpsilon, 0.2, c.given("trainer.clip_epsilon"))
	if !c.given("trainer.normalize_std") {
		c.Trainer.NormalizeStd = true
	}
	orNumber(&c.Trainer.GradientNorm, 1, c.given("trainer.gradient_norm"))
	orCount(&c.Trainer.Minibatches, 1, c.given("trainer.minibatches"))
	c.correctionDefaults()

	orCount(&c.Evaluate.Prompts, min(evaluatedDefault, c.Environment.HeldOut), c.given("evaluate.prompts"))
	orCount(&c.Evaluate.Every, 25, c.given("evaluate.every"))
}

// storeDefaults fills in where files go and what failures do.
func (c *Config) storeDefaults() {
	orWord(&c.Store.Dir, "runs")
	orWord(&c.Store.Durability, "kernel")
	orCount(&c.Store.SnapshotEvery, 25, c.given("store.snapshot_every"))
	orCount(&c.Store.KeepVersions, 3, c.given("store.keep_versions"))
	orCount(&c.Store.SamplesEvery, 25, c.given("store.samples_every"))
	orCount(&c.Failures.MaxAttempts, 3, c.given("failures.max_attempts"))
	orWord(&c.Failures.OnFailure, "drop_group")
	c.serverDefaults()
	c.sinkDefaults()
	c.gatewayDefaults()
	c.scoringDefaults()
	orCount(&c.Failures.TrainAttempts, 3, c.given("failures.train_attempts"))
}

// orWord, orCount, orNumber and orSeed fill in one default.
func orWord(value *string, fallback string) {
	*value = cmp.Or(*value, fallback)
}

func orCount(value *int, fallback int, given bool) {
	if *value == 0 && !given {
		*value = fallback
	}
}

func orNumber(value *float64, fallback float64, given bool) {
	if *value == 0 && !given {
		*value = fallback
	}
}

func orSeed(value *uint64, fallback uint64, given bool) {
	if *value == 0 && !given {
		*value = fallback
	}
}
