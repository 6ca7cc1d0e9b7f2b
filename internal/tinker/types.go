package tinker

// ModelOptions describe an adapter to train.
type ModelOptions struct {
	// Base is the base model by the service's name for it, Rank the adapter's, at least 1.
	Base string
	Rank int
	// Seed of the adapter's initial weights.
	Seed int64
}

// Datum is one sequence to compute on. Targets[i] is the token that follows Tokens[:i+1], and everything has one entry
// a target; a slice that is nil is not sent. A loss reads what it needs: cross_entropy Targets and Weights, the others
// Targets, Logprobs and Advantages.
type Datum struct {
	Tokens, Targets []int32
	// Weights multiply a target's loss. Logprobs are those that the target was sampled with, in nats; Advantages are 0
	// for targets that were not sampled.
	Weights, Logprobs, Advantages []float32
}

// Loss is one that services compute, summed over targets.
type Loss struct {
	// Name: cross_entropy (−w·logp), importance_sampling (−exp(logp−q)·A), ppo, cispo.
	Name string
	// Config has clip_low_threshold and clip_high_threshold of ppo and cispo, bounds of the ratio itself; nil for none.
	Config map[string]float64
}

// Output is what a pass over data has computed, one entry a datum in the order of the call, however it was divided.
type Output struct {
	// Logprobs of the targets under the model's weights, in nats.
	Logprobs [][]float32
	// Metrics of the service under its own names, such as loss:sum, over all of the data.
	Metrics map[string]float64
}

// Adam is an optimizer step's settings. The zero values of Beta1, Beta2 and Epsilon mean 0.9, 0.95 and 1e-12.
type Adam struct {
	LearningRate, Beta1, Beta2, Epsilon float64
	// GradientNorm scales a larger gradient down to it; 0 for no bound. Services may ignore it.
	GradientNorm float64
}

// SampleRequest asks for one sequence.
type SampleRequest struct {
	// Prompt is everything before the first token to sample, MaxTokens at least 1.
	Prompt    []int32
	MaxTokens int
	// Temperature, TopP (1 cuts nothing) and TopK (0 cuts nothing) of the distribution.
	Temperature, TopP float64
	TopK              int
	// Stop are tokens that end the sequence, StopTexts texts; at most one of the two is given.
	Stop      []int32
	StopTexts []string
	// Seed of the draw; 0 leaves it to the service.
	Seed int64
}

// Sequence is what was sampled.
type Sequence struct {
	Tokens []int32
	// Logprobs of Tokens, in nats.
	Logprobs []float32
	// Stopped: it ended by a stop, whose token is the last where the service returns it, and not by MaxTokens.
	Stopped bool
}
