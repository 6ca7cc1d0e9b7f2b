// Package gateway makes rollouts of programs that speak OpenAI's API: what they sample under
// /v1 is recorded token by token, and weights change underneath without them noticing.
//
// A request names its rollout, a claim of env/remote, in the header X-Headway-Rollout or as its
// API key. Chats are rendered into tokens once: of a message that the policy wrote, the very
// tokens that it sampled stay in every later prompt, and only what was added since is rendered.
// A history that was changed begins a new branch, which is trained on as a sequence of its own.
//
// The loop owns the concurrency: a rollout has one slot, so the calls of one rollout are sampled
// one after the other, whether they are the n choices of one request or several requests at once.
package gateway
