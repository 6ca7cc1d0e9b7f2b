// Package gateway makes rollouts of programs that speak OpenAI's API. Their samples under /v1 are
// recorded token by token, and weights change underneath without them noticing.
//
// A request names its rollout, a claim of env/remote, in the header X-Headway-Rollout. The server before
// it sets that from the API key. Chats are rendered into tokens once. Of a message that the policy wrote, the very tokens
// that it sampled stay in every later prompt, and only the added part is rendered. A history that
// was changed begins a new branch, which is trained on as a sequence of its own.
//
// The added part is told by one rendering, of the whole chat, where that proves it. It has to begin with the
// rendering that the turn before was made of, and to go on with what was sampled, token by token. Else the
// difference of two renderings tells it: of the chat up to the policy's message, and of all of it. The close of
// that message is the common end of two chats that differ in its text. The first rendering may not begin the
// second, because the template puts something before its last answer, such as an empty block of thinking. Then the
// added part is the common text of two such chats behind that answer. Where the answer itself is rendered
// otherwise, as under templates that leave out earlier thinking, the prompt is the whole rendering and begins a
// branch. It is counted as fallback.
// The text prompts of /v1/completions are not joined: a client that continues a response there sends
// token ids.
//
// The loop owns the concurrency: a rollout has one slot. So the calls of one rollout are sampled
// one after the other, for n choices of one request as for several requests at once. A client that
// leaves takes its turn back. One that has left with its turn complete, or after the first of n
// choices, leaves in the rollout what was complete by then.
//
// Beyond OpenAI's shape a choice has "headway". It holds its branch and the reason why that branch
// began (left out where it went on). It also holds the versions of its tokens in runs, and the
// client's settings that the run's replaced. A whole answer names the latter in the header
// X-Headway-Sampling, too. The option return_token_ids adds token_ids and prompt_token_ids where vLLM
// has them. Log-probs name tokens as "token_id:N".
//
// These are refused with the name of the field: tools that the chat's rendering does not show, unless
// they are not to be called. So are grammars, and formats other than text. So are top_logprobs,
// forced calls of tools, and all fields that would change the template. A seed is never taken, and
// named among what the run's took the place of. Ignored: user, and unknown fields.
package gateway
