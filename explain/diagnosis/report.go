package diagnosis

import (
	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/observe/attribution"
)

// Report is what is found in a run.
type Report struct {
	// Run names it; Source is live, run, simulation, or the framework whose log it is.
	Run    string `json:"run"`
	Source string `json:"source"`
	// Settled says whether the run can be judged yet. If not, there are no findings but those
	// that need no steady state.
	Settled Settled `json:"settled"`
	// Fitted are the quantities of the model, estimated from the run.
	Fitted Fitted `json:"fitted"`
	// Compared puts measured figures beside predicted ones.
	Compared []Comparison `json:"compared"`
	// Attribution is nil where the log does not allow any.
	Attribution *attribution.Summary `json:"attribution"`
	// Findings by what they cost, the dearest first.
	Findings []Finding `json:"findings"`
	// Drift is how the run's workload moved over time.
	Drift []Drift `json:"drift"`
	// Asynchrony is what a synchronous run would gain; nil for others, and where its log lacks the parts of a step.
	Asynchrony *Asynchrony `json:"asynchrony,omitempty"`
	// Log is the foreign log: it has the gaps, and the values that were inferred; nil for our own runs.
	Log      *foreign.Log `json:"log,omitempty"`
	Warnings []string     `json:"warnings"`
}

// Settled is whether a mean of the run means anything.
type Settled struct {
	OK bool `json:"ok"`
	// Why not, in words; MoreSteps is how many further train steps it should take, 0 where none can
	// be said. FromStep is where the judged window begins, Steps how many it has.
	Why       string `json:"why,omitempty"`
	MoreSteps int64  `json:"more_steps,omitempty"`
	FromStep  int64  `json:"from_step"`
	Steps     int64  `json:"steps"`
}

// Fitted are the model's quantities. Each is a figure with its origin; unknown ones have no key in JSON.
type Fitted struct {
	Concurrency    foreign.Figure `json:"concurrency_rollouts,omitzero"`
	Batch          foreign.Figure `json:"batch_rollouts,omitzero"`
	GroupSize      foreign.Figure `json:"group_size,omitzero"`
	TailMultiplier foreign.Figure `json:"tail_multiplier,omitzero"`
	Utilization    foreign.Figure `json:"utilization,omitzero"`
	Acceptance     foreign.Figure `json:"acceptance,omitzero"`
	// StepS is the train step alone, StepVariation its standard deviation over its mean.
	StepS         foreign.Figure `json:"step_s,omitzero"`
	StepVariation foreign.Figure `json:"step_variation,omitzero"`
	SyncS         foreign.Figure `json:"sync_s,omitzero"`
	// EnvironmentRatio is e: environment time over generation time of a rollout.
	EnvironmentRatio foreign.Figure `json:"environment_ratio,omitzero"`
	QueueFactor      foreign.Figure `json:"queue_factor,omitzero"`
	// VariationArrivals is c, the effective variability of arrivals near ρ = 1.
	VariationArrivals foreign.Figure `json:"arrival_variation,omitzero"`
}

// Comparison is one measured figure beside its prediction.
type Comparison struct {
	// Name of the figure: staleness_mean, pqs, iqs, staleness_p95, period_s, trainer_idle_ratio…
	What string `json:"what"`
	// Measured with its half interval (95 %), 0 where there is none; Predicted by Method: closed_form,
	// simulation, resimulation or before_the_run.
	Measured  float64 `json:"measured"`
	Half      float64 `json:"half"`
	Predicted float64 `json:"predicted"`
	Method    string  `json:"method"`
}

// Finding is something that costs the run, or may.
type Finding struct {
	// Code names the kind, Title says it in one sentence.
	Code  string `json:"code"`
	Title string `json:"title"`
	// Severity is cost (it can be improved), warning (it will be dear) or defect (something is broken).
	Severity string `json:"severity"`
	// Evidence are the figures it rests on, in words.
	Evidence []string `json:"evidence"`
	// CostVersions is the staleness it is responsible for, CostRatio the share of the period.
	CostVersions float64 `json:"cost_versions"`
	CostRatio    float64 `json:"cost_ratio"`
	// Change is what to do; nil where nothing can be set, and NoSetting then says why.
	Change    *Change `json:"change,omitempty"`
	NoSetting string  `json:"no_setting,omitempty"`
	// Fails says under which condition the advice is wrong.
	Fails string `json:"fails,omitempty"`
}

// Change is a setting with what it would buy and cost.
type Change struct {
	// Set is the key and value as --set takes it, or the framework's own knob; HoldsFixed what does not move.
	Set string `json:"set"`
	// Overrides are the same one by one, each as --set takes it; none where Set is no key of ours.
	Overrides  []string `json:"overrides,omitempty"`
	HoldsFixed string   `json:"holds_fixed,omitempty"`
	// StalenessMean after it, in versions, PeriodRatio the period after over before.
	StalenessMean float64 `json:"staleness_mean"`
	PeriodRatio   float64 `json:"period_ratio"`
	// Gain is the fall of the mean staleness, 0 to 1; Low and High its 95 % interval where simulated.
	Gain     float64 `json:"gain"`
	GainLow  float64 `json:"gain_low,omitempty"`
	GainHigh float64 `json:"gain_high,omitempty"`
	// Method is closed_form, simulation or resimulation.
	Method string `json:"method"`
	// Price in words: idle GPUs, dropped groups, bias, memory.
	Price string `json:"price"`

	periodHalf float64 // of the 95 % interval of PeriodRatio
}

// Drift is one quantity over the run.
type Drift struct {
	// Name of the quantity: response_tokens, tail_multiplier, solve_rate, acceptance…
	What string `json:"what"`
	// First and Last are means over the first and last quarter, PerStep the slope; Sure says that it is not chance.
	First   float64 `json:"first"`
	Last    float64 `json:"last"`
	PerStep float64 `json:"per_step"`
	Sure    bool    `json:"sure"`
	// Means says what it leads to, empty for nothing.
	Means string `json:"means,omitempty"`
}
