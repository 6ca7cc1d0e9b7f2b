// Package remote is an environment whose rollouts are played by workers in other processes. They
// claim a rollout, sample with it, and finish it with a reward. It implements port.Environment
// towards the runtime.
//
// Tokens, log-probs and versions stay here. A worker gets the sampled tokens, and the trainer gets
// the recorded ones, not those that a worker sends back. A rollout is acknowledged once its payload
// and its event are durable.
//
// # A claim's life
//
// The runtime plays a rollout: it is offered, and claimed in the order of offers. A
// claim lasts ClaimTTL from the end of the last call that names it; while such a call
// is open, it lasts. It ends in one of these ways, each once:
//
//   - finished: the worker gave a reward or a reason to fail. A reward is answered when
//     the runtime says that it is logged, and whether it counted.
//   - expired: no call named it for that time. The runtime is told of a timeout and tries the
//     rollout again as its next attempt, which is another claim.
//   - unwanted: the loop gave the attempt up, or put another in its place.
//   - broken: the engine failed. The runtime tries again as its next attempt.
//
// The ends of the last Kept claims are remembered, so that a late or repeated call gets the same
// answer. That rollouts are interrupted and resumed is not seen here: a call to sample lasts until
// its response is complete.
//
// # Agents
//
// A rollout may be sampled by calls that have neither worker nor number (Turn): those of an agent
// that speaks to the gateway. They are sampled one after the other, as they come. A prompt that
// begins with a branch's tokens goes on with that branch, the longest that fits. Any other begins a
// new one, for the policy is trained on the text that it saw. A call whose client leaves is taken
// back: the engine is stopped and nothing of it is recorded. So is one that is open when the
// rollout is finished: the reward is for what was answered. The branches are the sample's
// sequences, one after the other. A rollout is sampled this way or by numbered calls (Sample),
// never by both.
//
// # Rollouts sampled elsewhere
//
// A worker may bring the tokens of a rollout that it sampled itself, with their log-probs and
// versions. The rollout's slot stays idle meanwhile, and the group keeps the start version that the
// loop stamped it with when it issued the rollout. The tokens' own versions say which weights
// sampled them.
package remote
