// Package gateway makes rollouts of programs that speak OpenAI's API: what they sample under
// /v1 is recorded token by token, and weights change underneath without them noticing.
//
// A request names its rollout, a claim of env/remote, in the header X-Headway-Rollout or as its
// API key. Chats are rendered into tokens once: of a message that the policy wrote, the very
// tokens that it sampled stay in every later prompt, and only what was added since is rendered.
// A history that was changed begins a new branch, which is trained on as a sequence of its own.
//
// What was added is told by the difference of two renderings: of the chat up to the policy's
// message, and of all of it. What closes that message is what two chats have in common at their
// ends that differ in what it says. Where the first rendering does not begin the second, but only for
// what the template puts before its last answer, such as an empty block of thinking, what was added is
// what two such chats have in common behind that answer. Where the answer itself is rendered otherwise,
// as under templates that leave out earlier thinking, the prompt is the whole rendering and begins a
// branch; it is counted as fallback. The text prompts of /v1/completions are not joined: whoever goes on
// with a response there sends token ids.
//
// The loop owns the concurrency: a rollout has one slot, so the calls of one rollout are sampled
// one after the other, whether they are the n choices of one request or several requests at once.
// A client that leaves takes its turn back. One that has left with its turn complete, or after the
// first of n choices, leaves in the rollout what was complete by then.
//
// Beyond OpenAI's shape a choice has "headway": its branch, why that began (left out where it went
// on), the versions of its tokens in runs, and the client's settings that the run's took the place
// of; a whole answer names the latter in the header X-Headway-Sampling, too. return_token_ids adds
// token_ids and prompt_token_ids where vLLM has them. Log-probs name tokens as "token_id:N".
//
// Refused with the name of the field: tools that the chat's rendering does not show, unless they are not
// to be called; grammars and formats other than text, top_logprobs, forced
// calls of tools, and whatever would change the template. A seed is never taken, and named among what
// the run's took the place of. Ignored: user, and what is not known.
package gateway
