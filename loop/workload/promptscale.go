package workload

import (
	"cmp"
	"math"
)

// promptSigmaMax bounds the spread of prompts: at 3 one prompt in a thousand is
// a hundred times as long as the mean.
const promptSigmaMax = 3

// PromptScale makes some prompts long and others short. Every length of a prompt is multiplied by
// the prompt's own factor, lognormal with mean 1. So siblings correlate, and a prompt that is
// played again is as long as before. The zero PromptScale changes nothing.
type PromptScale struct {
	sigma float64
	limit int
}

// NewPromptScale returns the model with a standard deviation sigma of the
// factor's logarithm, 0 (off) to 3. Scaled lengths are cut to capTokens, 0 for
// MaxTokens; the cap lowers their mean below that of the lengths alone.
func NewPromptScale(sigma float64, capTokens int) (PromptScale, error) {
	if err := inRange("prompt_sigma", sigma, 0, promptSigmaMax, " (0 is off)"); err != nil {
		return PromptScale{}, err
	}
	if capTokens < 0 || capTokens > MaxTokens {
		return PromptScale{}, &FieldError{"cap_tokens", capTokens, "1 to 1048576, or 0 for no cap below that"}
	}
	capTokens = cmp.Or(capTokens, MaxTokens)
	return PromptScale{sigma, capTokens}, nil
}

// Off reports whether the model changes nothing.
func (p PromptScale) Off() bool { return p.sigma == 0 }

// Factor returns the prompt's factor: a pure function of its arguments.
func (p PromptScale) Factor(src Source, prompt uint64) float64 {
	return LognormalFactor(src, prompt, p.sigma)
}

// Apply returns the scaled length: rounded, at least one token, at most the cap.
func (p PromptScale) Apply(src Source, prompt uint64, tokens int) int {
	if p.Off() {
		return tokens
	}
	return max(1, int(min(math.Round(float64(tokens)*p.Factor(src, prompt)), float64(p.limit))))
}

// LognormalFactor returns exp(σz − σ²/2), of mean 1, with z standard normal drawn
// for the key: a pure function of its arguments. A sigma of 0 gives 1.
func LognormalFactor(src Source, key uint64, sigma float64) float64 {
	if sigma == 0 {
		return 1
	}
	return math.Exp(sigma * (src.normal(key) - sigma/2))
}

// normal returns a standard normal number that everything of a key shares.
func (s Source) normal(key uint64) float64 {
	return -math.Sqrt2 * math.Erfcinv(2*unit(s.groupBits(key)))
}
