package plan

import (
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/theory"
)

// Problem is everything a plan is made from.
type Problem struct {
	// Document is the document, resolved by [config.Config.ForPlan]: the workload,
	// the rules a candidate starts from, the prices, the budget and the lists to try.
	Document config.Config
	// Raw is the document as it was given, overrides included: candidates are made of it.
	Raw config.Config
	// Machine is what the GPUs can do, with replicas of the size that the document gives, else of the smallest useful one.
	Machine Machine
	// Larger are the same GPUs with larger replicas, smallest first: [Make] searches the size too. Nil keeps Machine's.
	Larger []Machine
	// Teacher is one server of hardware.teacher's; zero for none.
	Teacher Teacher
	// Lengths and Environment are the document's models; a nil Environment takes no time.
	Lengths     *workload.Lengths
	Environment *workload.Times
	// Simulation turns a candidate's document into a simulation, as headway simulate does.
	// Nil leaves finalists unsimulated: the plan then rests on closed forms alone.
	Simulation func(config.Config) (sim.Config, error)
	// Uncovered says what of the workload no closed form knows, "" for nothing.
	// Closed forms then only choose the settings to simulate, and the simulation
	// decides.
	Uncovered string
	// Progress, if not nil, is told how many of a stage's candidates are done.
	Progress func(phase string, done, all int)
}

// progress reports to whoever listens.
func (p *Problem) progress(phase string, done, all int) {
	if p.Progress != nil {
		p.Progress(phase, done, all)
	}
}

// Machine is what the search knows of the GPUs, from rooflines or measurements.
type Machine struct {
	// Model and GPU name the presets behind the figures; "" where they were measured.
	Model string `json:"model,omitempty"`
	GPU   string `json:"gpu,omitempty"`
	// GPUs is how many there are for both sides.
	GPUs int `json:"gpus"`
	// GPUsPerReplica is the size of one engine: the rollout side comes in whole ones.
	GPUsPerReplica int `json:"gpus_per_replica"`
	// TrainGPUsMin is the fewest the trainer's memory allows, TrainGPUsUnit by how many it grows.
	TrainGPUsMin  int `json:"train_gpus_min"`
	TrainGPUsUnit int `json:"train_gpus_unit"`
	// TrainFloor says what the floor is made of.
	TrainFloor string `json:"train_floor"`
	// SlotsMax is how many rollouts' caches fit into one replica; 0 for no known limit.
	SlotsMax int `json:"slots_max_per_replica"`
	// SlotsFixed pins the rollouts at once on a replica: the only number that was measured; 0 for none.
	SlotsFixed int `json:"slots_per_replica,omitempty"`
	// PrefillS is the time in which a replica reads one rollout's prompt and its tools' outputs and decodes nothing, in seconds.
	PrefillS float64 `json:"prefill_s"`
	// ReadS is that time where a slot or a pool reads for it and the replica decodes on, in seconds.
	ReadS float64 `json:"read_s,omitempty"`
	// PromptTokens is the part of a sequence that a train step reads beside the response: the prompt and the results of
	// tools.
	PromptTokens float64 `json:"prompt_tokens"`
	// TrainTokensPerSPerGPU is the trainer's speed, prompt and response together: the most that large batches reach.
	TrainTokensPerSPerGPU float64 `json:"train_tokens_per_s_per_gpu"`
	// Notes say where the figures are from and which assumptions they make.
	Notes []string `json:"notes"`

	// StepS is the time of a decode step of one replica with so many rollouts
	// generating, in seconds; StepLimit names what limits it.
	StepS     func(active float64) float64 `json:"-"`
	StepLimit func(active float64) string  `json:"-"`
	// SyncS is the time of a weight sync between so many GPUs, in seconds.
	SyncS func(rolloutGPUs, trainGPUs int) float64 `json:"-"`
	// TrainS is the time of an update of so many rollouts, of so many tokens in all, in seconds; nil for
	// TrainTokensPerSPerGPU at any batch.
	TrainS func(rollouts, tokens float64, gpus int) float64 `json:"-"`
	// SwitchS is the time to hand shared GPUs from training to rollouts and back, in seconds; 0 for a sync's.
	SwitchS float64 `json:"-"`

	spread spreads
	// unsplit says why engines cannot be of GPUsPerReplica, "" where they can.
	unsplit string
}

// spreads are how far off the figures of a machine may be that nobody measured: standard deviations of logarithms.
type spreads struct {
	decode        func(active float64) float64
	train         func(gpus, batch int) float64
	sync, lengths float64
}

// updateS is the time of an update of so many rollouts of so many tokens each, prompts included, in seconds.
func (m *Machine) updateS(rollouts, tokens float64, gpus int) float64 {
	if m.TrainS != nil {
		return m.TrainS(rollouts, rollouts*tokens, gpus)
	}
	return rollouts * tokens / (float64(gpus) * m.TrainTokensPerSPerGPU)
}

// tokenS is the time of one token of a slot with so many at work, in seconds: the
// decode step and its share of reading, for rollouts of so many tokens on average.
func (m *Machine) tokenS(active, tokens float64) float64 {
	return m.StepS(active) + (active*m.PrefillS+m.ReadS)/tokens
}

// estimator prepares the closed forms of a problem.
func (p *Problem) estimator() (*theory.Estimator, error) {
	in := theory.Input{
		ConcurrencyRollouts: float64(max(p.Document.Rollout.GroupSize, 1)),
		BatchRollouts:       float64(p.Document.Train.Batch),
		GroupSize:           p.Document.Rollout.GroupSize,
		Utilization:         1,
		Lengths:             p.Lengths,
		Environment:         p.Environment,
		StepS:               1,
	}
	return theory.NewEstimator(in)
}
