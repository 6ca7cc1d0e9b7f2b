// Package llamacpp is how llama-server speaks: an upstream.Dialect over its /completion.
//
// These facts were found by trying, and the test against a real server checks them again:
//
//   - With post_sampling_probs, a token's prob is that of the distribution it was drawn from, at any
//     temperature and under any cut, and exact. Without, logprob is of the model's own distribution,
//     and its normalisation is off by some 2e-4 nats at 49 000 tokens. So the former is asked for.
//     A server that does not know it answers logprob, which Probe notices. Tokens that are sampled
//     there can be trained on at temperature 1 without cuts alone; anything else is refused.
//   - Samplers that a request does not name are those the server was started with, temperature 0.8,
//     top_k 40, top_p 0.95 and min_p 0.05 among them. A request names every one. So it is with the
//     seed: a server started with one would give all rollouts of a group the same tokens.
//   - A stream ends with the event that has "stop":true, without an end mark. An event without that
//     is not the last, even if the rest of it says so.
//   - A token that ends in the middle of a character is not shown in the stream; the event after it
//     counts it. The decoder notices, and says ErrHiddenToken before it takes anything of that event.
//   - There are no stop tokens but the end of generation: the decoder itself ends a response at one.
//   - Requests have no name. A request is aborted by closing its connection.
//   - Weights come with a restart alone; see Options.Command.
package llamacpp
