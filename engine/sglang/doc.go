// Package sglang speaks SGLang's native HTTP: /generate with token ids, and its control paths.
//
//   - A request's rid is the name that it is aborted by, and an abort takes every rid that begins
//     with it. So rids end in a terminator, and an empty one is never sent.
//   - Streams repeat everything so far in every event, or bring only the new part
//     (--incremental-streaming-output). An aborted one may bring the last id alone under output_ids
//     while its log-probs are all there. The adapter tells the new part by completion_tokens and the
//     number of output_token_logprobs, which have the ids too; output_ids is not read.
//   - A switch pauses in place, which keeps keys and values and cannot flush them, or retracts where
//     they are to be computed anew. Updates carry their label, so that /update_weight_version, which
//     aborts everything by default, is not needed.
//   - Since 0.5.21 tensors of a collective are taken only within a session, from /begin_weight_update to
//     /end_weight_update. Older releases have neither path. Updates by a directory need none.
//   - Log-probs are of the distribution after temperature and before cuts, unless the server is told
//     otherwise. Which of the three it is, is found out by sampling.
//   - An unload of an adapter waits for the last request of it and blocks loads until then. Requests that
//     are paused never end. A request that names an adapter which was unloaded has it loaded again.
//   - A router (sgl-model-gateway) passes sampling on to any of its workers, and no control. It is
//     recognised, and the engine then has neither pause nor update.
//
// These words on SGLang's replies were compared with the sources of SGLang 0.5.23. SGLang itself
// needs a GPU and has not been run. Pauses, updates, spans of versions, aborts, salts, scores and
// chats have been proven against examples/hf_shim alone. The recognition of a router was proven
// against sglang-router 0.3.2 in front of it. Adapters (LoRA) were proven against a stand-in written after
// the code of 0.5.23.
package sglang
