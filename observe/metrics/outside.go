package metrics

import "github.com/headway-rl/headway/loop"

// Part is one part of a rollout's end-to-end latency.
type Part uint8

// Parts of the latency, in the order in which a rollout may meet them.
const (
	// PartQueue waits for a prefill, at its engine or in the pool.
	PartQueue Part = iota
	// PartPrefill reads tokens into the cache.
	PartPrefill
	// PartDecode generates, or stands still in a slot of an engine that does.
	PartDecode
	// PartSandboxWait waits for one of a limited number of sandboxes, PartSandboxStart for its own to start.
	PartSandboxWait
	PartSandboxStart
	// PartToolWait waits for one of a limited number of tools, PartTool for its call.
	PartToolWait
	PartTool
	// PartEnvironment is the environment's time after the last turn.
	PartEnvironment
	// PartVerifierWait waits for the verifier, PartVerifier for its verdict.
	PartVerifierWait
	PartVerifier
	// PartScorerWait waits for one of a pool of scoring engines, PartScorer for its scores.
	PartScorerWait
	PartScorer
	// PartInterrupted stands without a slot while nothing else of it goes on.
	PartInterrupted

	// PartCount is the number of parts.
	PartCount
)

// Parts are the parts of one rollout's latency, in nanoseconds. They add up to the
// time from its attempt's start to its score.
type Parts [PartCount]int64

// Latency is how long a scored rollout took from its attempt's start on, and for
// what: means, in seconds. The parts add up to EndToEndS. A driver that does not
// say more splits the time in slots into decode and environment.
type Latency struct {
	EndToEndS     float64 `json:"end_to_end_s"`
	QueueS        float64 `json:"queue_s"`
	PrefillS      float64 `json:"prefill_s"`
	DecodeS       float64 `json:"decode_s"`
	SandboxWaitS  float64 `json:"sandbox_wait_s"`
	SandboxStartS float64 `json:"sandbox_start_s"`
	ToolWaitS     float64 `json:"tool_wait_s"`
	ToolS         float64 `json:"tool_s"`
	EnvironmentS  float64 `json:"environment_s"`
	VerifierWaitS float64 `json:"verifier_wait_s"`
	VerifierS     float64 `json:"verifier_s"`
	// ScorerWaitS and ScorerS are left out where nothing scores.
	ScorerWaitS  float64 `json:"scorer_wait_s,omitempty"`
	ScorerS      float64 `json:"scorer_s,omitempty"`
	InterruptedS float64 `json:"interrupted_s"`
}

// Services says what the services around the engines did in the measured window.
// All of it is 0 where the driver has none.
type Services struct {
	// ToolCallsPerRollout is the mean over scored rollouts, of calls that succeeded; ToolFailures counts
	// tries that did not.
	ToolCallsPerRollout float64 `json:"tool_calls_per_rollout"`
	ToolFailures        int64   `json:"tool_failures"`
	// SandboxesLiveMean and SandboxesLiveMax count sandboxes that start, run or wait for their rollout to
	// be resumed.
	SandboxesLiveMean float64 `json:"sandboxes_live_mean"`
	SandboxesLiveMax  int64   `json:"sandboxes_live_max"`
	// SandboxStarts counts start-ups that ended; SandboxFailures those that failed, SandboxTimeouts
	// those that took too long; SandboxErrorRate is the share of both.
	SandboxStarts    int64   `json:"sandbox_starts"`
	SandboxFailures  int64   `json:"sandbox_failures"`
	SandboxTimeouts  int64   `json:"sandbox_timeouts"`
	SandboxErrorRate float64 `json:"sandbox_error_rate"`
	// SandboxesLost counts those that died under their rollout.
	SandboxesLost int64 `json:"sandboxes_lost"`
	// SandboxStartMaxS is the longest start-up, its wait for a starter included, in seconds.
	SandboxStartMaxS float64 `json:"sandbox_start_max_s"`
	// Validations is how often the policy was validated, ValidationS how long that took in all, in
	// seconds, ValidationShare its share of the window.
	Validations     int64   `json:"validations"`
	ValidationS     float64 `json:"validation_s"`
	ValidationShare float64 `json:"validation_share"`
	// EnginesLost counts losses, EngineDownRatio is the share of all engines' time in which one was gone.
	EnginesLost     int64   `json:"engines_lost"`
	EngineDownRatio float64 `json:"engine_down_ratio"`
	// PrefixHit is the share of contexts' tokens that engines found in their caches as rollouts came to them, warm-up
	// included. It is left out where no cache is modelled.
	PrefixHit float64 `json:"prefix_hit,omitempty"`
}

// Failures counts rollout attempts that failed, by why.
type Failures struct {
	// Engine: it failed or was lost. Environment: a tool, a sandbox or a verifier failed. Timeout: a
	// limit on time was reached. Other: anything else.
	Engine      int64 `json:"engine"`
	Environment int64 `json:"environment"`
	Timeout     int64 `json:"timeout"`
	Other       int64 `json:"other"`
	// Data: the task itself cannot be played or judged.
	Data int64 `json:"data,omitempty"`
	// Scorer: no teacher or reference would score the rollout.
	Scorer int64 `json:"scorer,omitempty"`
}

// Infra counts the failures of the infrastructure, which are all but those of data.
func (f Failures) Infra() int64 { return f.Engine + f.Environment + f.Timeout + f.Scorer + f.Other }

// add counts one failed attempt.
func (f *Failures) add(why loop.Reason) {
	switch why {
	case loop.ReasonEngine:
		f.Engine++
	case loop.ReasonEnvironment:
		f.Environment++
	case loop.ReasonTimeout:
		f.Timeout++
	case loop.ReasonData:
		f.Data++
	case loop.ReasonScorer:
		f.Scorer++
	case loop.ReasonRestart: // it had no part in its end
	default:
		f.Other++
	}
}

// gauge is a number of things over time.
type gauge struct {
	now, most int64
	at        int64
	sumNS     int64 // Σ number · time until at
}

// to has the gauge show a number from a time on.
func (g *gauge) to(now, n int64) {
	g.sumNS += g.now * (now - g.at)
	g.at, g.now, g.most = now, n, max(g.most, n)
}

// reset begins a window at a time.
func (g *gauge) reset(now int64) { *g = gauge{now: g.now, most: g.now, at: now} }

// outside sums what a driver tells of the services around the engines.
type outside struct {
	sandboxes, down                gauge
	reading, validating            gauge // engines
	parts                          Parts
	rollouts, calls                int64 // scored, with Parts
	environmentNS                  int64 // of those, as EnvironmentNS counts it
	slotNS                         int64
	toolFailures                   int64
	starts, failed, timeouts, died int64
	startMaxNS                     int64
	validations, validationNS      int64
	lost                           int64
}

// reset begins a window at a time.
func (o *outside) reset(now int64) {
	o.sandboxes.reset(now)
	o.down.reset(now)
	o.reading.reset(now)
	o.validating.reset(now)
	*o = outside{sandboxes: o.sandboxes, down: o.down, reading: o.reading, validating: o.validating}
}

// SandboxesLive tells how many sandboxes there are from a time on, in ns.
func (r *Recorder) SandboxesLive(now int64, n int) { r.outside.sandboxes.to(now, int64(n)) }

// SandboxStarted tells of a start-up that ended, after so long: well, or by a
// failure, or by its time-out (ReasonNone, ReasonEnvironment, ReasonTimeout).
func (r *Recorder) SandboxStarted(tookNS int64, why loop.Reason) {
	o := &r.outside
	o.starts++
	o.startMaxNS = max(o.startMaxNS, tookNS)
	switch why {
	case loop.ReasonNone:
	case loop.ReasonTimeout:
		o.timeouts++
	default:
		o.failed++
	}
}

// SandboxLost tells of a sandbox that died under its rollout.
func (r *Recorder) SandboxLost() { r.outside.died++ }

// ToolFailed tells of a try of a tool call that failed.
func (r *Recorder) ToolFailed() { r.outside.toolFailures++ }

// Validated tells of a validation that takes so long, in ns, from now on.
func (r *Recorder) Validated(tookNS int64) {
	r.outside.validations++
	r.outside.validationNS += tookNS
}

// TrainerValidates tells of a validation that the train step just started waits for:
// so long, in ns, the trainer trains nothing.
func (r *Recorder) TrainerValidates(tookNS int64) {
	r.Validated(tookNS)
	r.trainFrom = r.run.NowNS + tookNS
	if r.Beside != nil {
		r.Beside.TrainerValidates(tookNS)
	}
}

// EnginesDown tells how many engines are gone from a time on, in ns.
func (r *Recorder) EnginesDown(now int64, n int) {
	r.outside.lost += max(int64(n)-r.outside.down.now, 0)
	r.outside.down.to(now, int64(n))
	if r.Beside != nil {
		r.Beside.EnginesDown(now, n)
	}
}

// EnginesHeld tells how many engines generate nothing from a time on, in ns. They read for one of
// their rollouts, or they are validating.
func (r *Recorder) EnginesHeld(now int64, reading, validating int) {
	r.outside.reading.to(now, int64(reading))
	r.outside.validating.to(now, int64(validating))
	if r.Beside != nil {
		r.Beside.EnginesHeld(now, reading, validating)
	}
}

// engineTime returns the shares of the engines' time in the window, which ends now, in
// which they read, and in which they are validating, while nothing is generated.
func (r *Recorder) engineTime() (reading, validating float64) {
	share := func(g gauge) float64 {
		g.to(r.run.NowNS, g.now)
		return ratio(g.sumNS, (r.run.NowNS-r.window.start)*int64(len(r.run.Engines)))
	}
	return share(r.outside.reading), share(r.outside.validating)
}

// latencyOf counts a scored rollout whose driver splits its latency. slotNS is
// its time in slots.
func (o *outside) latencyOf(m *Measured, slotNS int64) {
	o.rollouts++
	o.calls += int64(m.ToolCalls)
	o.slotNS += slotNS
	o.environmentNS += min(m.EnvironmentNS, slotNS)
	for i, ns := range m.Parts {
		o.parts[i] += ns
	}
}

// latency returns the means of the window.
func (w *window) latency(o *outside) Latency {
	p := o.parts
	// Rollouts whose driver says nothing more were decoded, or in their environment.
	p[PartEnvironment] += w.environmentNS - o.environmentNS
	p[PartDecode] += w.durationNS - o.slotNS - (w.environmentNS - o.environmentNS)
	all := int64(0)
	for _, ns := range p {
		all += ns
	}
	mean := func(ns int64) float64 { return ratio(ns, max(w.sampled, 1)) / 1e9 }
	return Latency{
		EndToEndS: mean(all), QueueS: mean(p[PartQueue]), PrefillS: mean(p[PartPrefill]), DecodeS: mean(p[PartDecode]),
		SandboxWaitS: mean(p[PartSandboxWait]), SandboxStartS: mean(p[PartSandboxStart]),
		ToolWaitS: mean(p[PartToolWait]), ToolS: mean(p[PartTool]), EnvironmentS: mean(p[PartEnvironment]),
		VerifierWaitS: mean(p[PartVerifierWait]), VerifierS: mean(p[PartVerifier]),
		ScorerWaitS: mean(p[PartScorerWait]), ScorerS: mean(p[PartScorer]), InterruptedS: mean(p[PartInterrupted]),
	}
}

// services returns the figures of a window that ends now.
func (r *Recorder) services() Services {
	o := r.outside
	o.sandboxes.to(r.run.NowNS, o.sandboxes.now)
	o.down.to(r.run.NowNS, o.down.now)
	span := r.run.NowNS - r.window.start
	return Services{
		ToolCallsPerRollout: ratio(o.calls, r.window.sampled), ToolFailures: o.toolFailures,
		SandboxesLiveMean: ratio(o.sandboxes.sumNS, span), SandboxesLiveMax: o.sandboxes.most,
		SandboxStarts: o.starts, SandboxFailures: o.failed, SandboxTimeouts: o.timeouts,
		SandboxErrorRate: ratio(o.failed+o.timeouts, o.starts), SandboxStartMaxS: float64(o.startMaxNS) / 1e9,
		SandboxesLost: o.died,
		Validations:   o.validations, ValidationS: float64(o.validationNS) / 1e9, ValidationShare: ratio(o.validationNS, span),
		EnginesLost: o.lost, EngineDownRatio: ratio(o.down.sumNS, span*int64(len(r.run.Engines))),
	}
}

// binding names the service on which rollouts spend most of their time; if that is less
// than what they spend at the engines, what engines do most: "validation", "prefill", or
// "rollout" where they generate. reading and validating are the shares of their time in
// which they do that and generate nothing.
func (l Latency) binding(reading, validating float64) string {
	engine := l.QueueS + l.PrefillS + l.DecodeS
	sandbox, judge, score := l.SandboxWaitS+l.SandboxStartS, l.VerifierWaitS+l.VerifierS, l.ScorerWaitS+l.ScorerS
	environment := l.ToolWaitS + l.ToolS + l.EnvironmentS
	switch {
	case environment+sandbox+judge+score <= engine:
		switch generating := 1 - reading - validating; {
		case validating > max(reading, generating):
			return "validation"
		case reading > generating || l.QueueS+l.PrefillS > l.DecodeS:
			return "prefill"
		}
		return "rollout"
	case sandbox > max(environment, judge, score):
		return "sandbox"
	case score > max(environment, judge):
		return "scorer"
	case judge > environment:
		return "verifier"
	}
	return "environment"
}
