package steps

import (
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Metrics by which a trainer says whether its log-probs of a batch agree with the engines'. docs/trainer.md has them.
const (
	// forwardAgrees is 1 or 0, and absent where the batch could not be judged.
	forwardAgrees = "forward/agrees"
	// forwardDifference is the mean of |trainer - engine| in nats a token.
	forwardDifference = "forward/difference"
	// forwardCause and the name of a likely cause is 1.
	forwardCause = "forward/cause/"
)

// Cause is a likely reason for log-probs that disagree.
type Cause struct {
	// Name is its key in metrics, such as temperature.
	Name string
	// Do says where to look.
	Do string
	// Vague: no pattern of its own tells it.
	Vague bool
}

// Causes are all that a trainer may name; the last stands for any other.
var Causes = []Cause{
	{Name: "off_by_one", Do: "entry i is to be about token i, by the logits at i - 1"},
	{Name: "temperature", Do: "divide the logits by rollout.sampling.temperature"},
	{Name: "cut", Do: "engines cut (top_p, top_k): use sampling_mask; or these are of no softmax"},
	{Name: "blind", Do: "give the model pixel values of batch.media, in their order"},
	{Name: "positions", Do: "positions, padding or mask are wrong by length"},
	{Name: "random", Do: "dropout is on, or the causal mask or padding is wrong"},
	{Name: "future", Do: "the model has seen the token: logits at i - 1, causal mask"},
	{Name: "template", Do: "the prompt is not what the engine read"},
	{Name: "precision", Do: "weights or logits are rounded, or of a version nearby", Vague: true},
	{Name: "weights", Do: "other weights or tokenizer, or logits of another token", Vague: true},
	{Name: "unknown", Do: "look at positions, temperature, mask, weights and dtype", Vague: true},
}

// Forward is a verdict on a trainer's forward pass.
type Forward struct {
	// Version is the one that the step started from.
	Version loop.Version
	// Agrees says that its log-probs of the batch are the engines'.
	Agrees bool
	// Difference is the mean of |trainer - engine| in nats a token.
	Difference float64
	// Cause is the likely reason; zero where they agree.
	Cause Cause
}

// Forward is what the trainer found of its forward pass; false where it said nothing or could not judge.
func (l *Line) Forward() (Forward, bool) {
	agrees, judged := l.Metrics[forwardAgrees]
	if !judged {
		return Forward{}, false
	}
	f := Forward{Version: l.Step - 1, Agrees: agrees != 0, Difference: l.Metrics[forwardDifference]}
	if f.Agrees {
		return f, true
	}
	at := slices.IndexFunc(Causes, func(c Cause) bool { return l.Metrics[forwardCause+c.Name] != 0 })
	if at < 0 {
		at = len(Causes) - 1
	}
	f.Cause = Causes[at]
	return f, true
}

// After is the verdict in the light of the one before, nil for none. A pattern that told of the cause is not
// forgotten for a batch that shows none.
func (f Forward) After(before *Forward) Forward {
	if !f.Agrees && f.Cause.Vague && before != nil && !before.Agrees && !before.Cause.Vague {
		f.Cause = before.Cause
	}
	return f
}

// String says it in a sentence.
func (f Forward) String() string {
	if f.Agrees {
		return fmt.Sprintf("the trainer's log-probs are the engines' at version %d (%.2g nats apart)", f.Version, f.Difference)
	}
	return fmt.Sprintf("the trainer's log-probs are %.2g nats off the engines' at version %d. Likely %s: %s", f.Difference, f.Version, f.Cause.Name, f.Cause.Do)
}
