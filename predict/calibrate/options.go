package calibrate

import (
	"fmt"
	"slices"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Options of a calibration.
type Options struct {
	// Engine is measured. It serves some version already, and has no other user.
	Engine port.Engine
	// Slots is the greatest number of responses at once, at most the engine's. 1, 2, 4 and so on up to it are measured.
	Slots int
	// PromptTokens and ResponseTokens are of every response that decoding is measured with.
	PromptTokens, ResponseTokens int
	// Vocabulary is the number of token ids; prompts are random ones of its upper seven eighths,
	// where special tokens are rare.
	Vocabulary int
	// Context bounds prompt and response together, in tokens; 0 for no bound.
	Context int
	// Point is how long one number of slots is measured, Repeats in how many rounds, 6 at least for
	// an interval of 95 %.
	Point   time.Duration
	Repeats int
	// PrefillTokens are the lengths of prompts whose time to the first token is measured; nil for none.
	PrefillTokens []int
	// Prompts are those whose responses' lengths are measured, Samples of each, up to LengthMax tokens.
	Prompts            [][]int32
	Samples, LengthMax int
	// Versions are switched to one after the other, as syncs; nil for none.
	Versions []loop.Version
	// Sampling of the responses to Prompts; nil is the policy as it is.
	Sampling *port.Sampling
	// Seed of the random prompts.
	Seed uint64
	// Progress, if not nil, is told before every piece of work how many are done, of how many, and the name of the next
	// one. It does not block.
	Progress func(done, all int, next string)
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	switch {
	case o.Engine == nil:
		return fmt.Errorf("calibrate: there is no engine")
	case o.Slots < 1 || o.Slots > o.Engine.Slots():
		return fmt.Errorf("calibrate: %d slots, the engine has %d", o.Slots, o.Engine.Slots())
	case o.PromptTokens < 1 || o.ResponseTokens < 2:
		return fmt.Errorf("calibrate: prompts of %d tokens and responses of %d, want at least 1 and 2", o.PromptTokens, o.ResponseTokens)
	case o.Context > 0 && o.PromptTokens+o.ResponseTokens > o.Context:
		return fmt.Errorf("calibrate: prompts of %d tokens and responses of %d do not fit in the engine's context of %d", o.PromptTokens, o.ResponseTokens, o.Context)
	case o.Vocabulary < 8:
		return fmt.Errorf("calibrate: a vocabulary of %d tokens, want at least 8 to draw prompts from", o.Vocabulary)
	case o.Point <= 0 || o.Repeats < 1:
		return fmt.Errorf("calibrate: %v a point in %d rounds, want some time and at least 1", o.Point, o.Repeats)
	case len(o.Prompts) > 0 && (o.Samples < 1 || o.LengthMax < 1):
		return fmt.Errorf("calibrate: %d responses of at most %d tokens to each prompt, want at least 1", o.Samples, o.LengthMax)
	}
	for _, p := range o.PrefillTokens {
		if p < 1 || o.Context > 0 && p >= o.Context {
			return fmt.Errorf("calibrate: a prompt of %d tokens in a context of %d, want at least 1 and less than it", p, o.Context)
		}
	}
	return nil
}

// concurrencies are 1, 2, 4 and so on, and last the slots themselves.
func (o Options) concurrencies() []int {
	var all []int
	for n := 1; n < o.Slots; n *= 2 {
		all = append(all, n)
	}
	return append(all, o.Slots)
}

// pieces is how many pieces of work there are.
func (o Options) pieces() int {
	n := 1 + len(o.concurrencies())*o.Repeats + len(o.Versions)
	if len(o.PrefillTokens) > 0 {
		n += 1 + len(o.PrefillTokens)*o.Repeats
	}
	if len(o.Prompts) > 0 {
		n++
	}
	return n
}

// PrefillLengths are lengths of prompts to measure prefill with. They run from 32 tokens on, each twice the one
// before, up to the last one that leaves room for a token, at most 8192.
func PrefillLengths(context int) []int {
	most := 8192
	if context > 0 {
		most = min(most, context-1)
	}
	var lengths []int
	for n := 32; n <= most; n *= 2 {
		lengths = append(lengths, n)
	}
	if len(lengths) > 0 && most > lengths[len(lengths)-1]*5/4 {
		lengths = append(lengths, most)
	}
	return slices.Clip(lengths)
}
