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
}

// Causes are all that a trainer may name; the last stands for any other.
var Causes = []Cause{
	{"off_by_one", "entry i of the log-probs is to be about token i, by the logits at i - 1"},
	{"temperature", "divide the logits by rollout.sampling.temperature before the softmax"},
	{"cut", "the engine samples from a cut distribution (top_p, top_k, min_p), or the trainer's are no log-probs of a softmax"},
	{"random", "dropout is on, there is no causal mask, or padding and neighbours in the batch count"},
	{"future", "the model has seen the token that it predicts: logits at i instead of i - 1, or no causal mask"},
	{"positions", "positions, padding or the attention mask go wrong by a sequence's length"},
	{"template", "the prompt is not what the engine read: its template, special tokens or truncation"},
	{"precision", "weights or logits are rounded, or the weights are those of a version nearby"},
	{"weights", "other weights, another tokenizer, other positions, or logits of another token"},
	{"unknown", "look at positions, temperature, the attention mask, the weights that were loaded, and dtype"},
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

// String says it in a sentence.
func (f Forward) String() string {
	if f.Agrees {
		return fmt.Sprintf("at version %d the trainer's log-probs agree with the engines' (%.2g nats a token)", f.Version, f.Difference)
	}
	return fmt.Sprintf("at version %d the trainer's log-probs are %.2g nats a token off the engines'. Likely %s: %s", f.Version, f.Difference, f.Cause.Name, f.Cause.Do)
}
