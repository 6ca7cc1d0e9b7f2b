// Package protocol has the words of the HTTP API as JSON: requests, answers and refusals. Server,
// adapters, commands and tests share them; the Python client speaks the same. It holds no behaviour
// beyond checking that a message can be meant.
//
// Names end in their unit (_s, _ms, _bytes, _tokens). Times are durations, never
// dates: no two machines need to agree on a clock. Ids are numbers where the loop
// numbers them (groups, leases, versions) and text where the server makes them up.
//
// # A batch
//
// A batch is one safetensors body. R sequences lie packed, one after the other, N tokens in all. A rollout is one
// sequence, but for those whose history was changed on the way. They leave several, side by side, each with the
// rollout's reward. Every per-token tensor is aligned with tokens: entry i is about token i itself, not about the
// prediction of the next one.
//
//	tokens      I32 [N]    prompt and response ids
//	offsets     I64 [R+1]  sequence r is tokens[offsets[r]:offsets[r+1]]
//	loss_mask   U8  [N]    1 where the policy sampled the token, else 0
//	logprobs    F32 [N]    log-probability under the policy that sampled it, in nats; 0 where the mask is 0
//	versions    I32 [N]    policy version that sampled it; -1 where the mask is 0
//	advantages  F32 [R]    reward relative to its group
//	rewards     F32 [R]
//	groups      I64 [R]    id of the rollout's group; equal ids are neighbours
//	samples     I32 [R]    place in the group, from 0
//	rollouts    I32 [R]    number of the rollout in the body, from 0; there only where a
//	                       rollout of the batch has several sequences
//	agents      I32 [R]    place of the sequence's agent in the lease's agents, -1 for none; there
//	                       only where one of the batch is named
//
// The metadata entry "headway" of its header is a [Lease] as JSON.
//
// # Refusals
//
// Every error is {"error":{"code","message","detail"}} with the status of its code:
// see [Refusal].
package protocol
