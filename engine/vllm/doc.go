// Package vllm is the dialect of vLLM's server.
//
// These facts were tried with vLLM 0.32.0 on a CPU (float32, prefix caching on). The code and its
// tests stand on them. Some of it differs from the server's own documentation.
//
// # Sampling
//
//   - Without --enable-scale-out, /inference/v1/generate answers 403 and is not listed in
//     /openapi.json. With it, output_mode "text" brings ids and text at once, its log-probs named by
//     text and not by id; output_mode "tokens" names them by id.
//   - An id outside the vocabulary is an error inside the stream of an HTTP 200 on both ways:
//     {"error":{"code":400}} and then [DONE]. So is a prompt over the context on
//     /inference/v1/generate. On /v1/completions that is HTTP 400, as a bad temperature is on both. A
//     max_tokens beyond the context is HTTP 400 for /v1/completions, and cut to the context for
//     /inference/v1/generate.
//   - A priority other than 0 is taken and ignored under the default scheduling policy. Older
//     builds refuse it, so it is left out where it is 0.
//   - The header X-Request-Id names a request, before request_id in the body. The server puts
//     generate-tokens- before it, or cmpl- before and -0 behind it, and an abort has to say that. Any
//     other id is answered with 200, counted as aborted, and changes nothing. A duplicate id is
//     taken; an abort by it ends both. Ids are not matched by prefix.
//   - Log-probs of greedy sampling (temperature 0) are the model's own at temperature 1 also under
//     processed_logprobs, and no cut counts. The prompt_logprobs are always the model's own.
//   - A cut keeps all tokens that are as likely as the last that it keeps: in bfloat16 top_k 1 often leaves two.
//   - The text leaves special tokens out (skip_special_tokens) and holds back the stop text; the
//     ids have both.
//
// # Side channels
//
// These were recorded of vLLM 0.30.0 with --enable-return-routed-experts (testdata/routing.txt).
//
//   - routed_experts of /inference/v1/generate has a row for every token but the last, of all layers. A dense layer's
//     are zeros. A stream has them in its last event. routed_experts_prompt_start skips rows; one beyond the prompt is
//     HTTP 400.
//   - An abort ends a whole answer with the rows so far. It ends a stream with [DONE], without a reason and without rows.
//   - Rows of a cached prefix are those of the pass that filled the cache, whichever weights are served now.
//
// # Pausing
//
//   - /pause?mode=keep drops the keys and values of running requests and of the prefix cache unless
//     clear_cache=false is said. The default of clear_cache is true; it is not ignored in this mode,
//     although the route's own description says so. After it, running requests are preempted and
//     computed anew under the weights of then.
//   - A request that comes in a pause waits, an abort in a pause works. Pausing and resuming twice
//     does nothing the second time.
//   - /reset_prefix_cache?reset_running_requests=true in a pause drops everything: the tokens
//     after it have exactly the log-probs of the new weights over the whole sequence. Without it
//     they are of old keys and values under new weights.
//
// # Versions
//
//   - weight_versions stands in the last event alone, after an abort too; its borders agree with the
//     log-probs to the token. The label is "default" until one is given. It is only a label. Nothing
//     checks that weights have changed, and requests name versions by it even if other weights
//     sampled them.
//   - /v1/completions brings no versions.
//
// # Updates
//
//   - There is no weight-transfer backend "disk" here; a backend registered under that name is
//     seen in /server_info and used. The way is /collective_rpc with reload_weights and weights_path.
//   - A checkpoint in which tensors are missing is loaded with HTTP 200, and the missing ones keep
//     their old values. Only the server's log says so. /weight_checker does not notice either on a
//     CPU, where the checksum of most layers is that of nothing.
//   - After a reload that failed (no such directory, a wrong shape) the server looks well, /health and /weight_info
//     included. Its label is the old one. Its layers are half replaced, a second reload of good weights fails too, and
//     the next token it samples ends the whole server.
//   - After an HTTP 500 that comes of an exception in a worker the server breaks off the connection
//     under the next request on it.
//   - /collective_rpc passes unknown keyword arguments on, and names in its error the first that the
//     method does not have. Probe tells by this whether weights_path is known, without loading.
//
// # Adapters
//
//   - load_inplace stays with the adapter. Every request that names it from then on has it read from
//     its directory again for every token. One that was under way before goes on naming the directory
//     that it began with. After an update in place such a request goes on with the old adapter, to
//     the bit, while weight_versions says the new label. Here every version is an adapter of its own,
//     never loaded in place. Responses under way are cut off, and go on as requests of the new one.
//   - /v1/unload_lora_adapter takes a name off the list alone. Requests of it go on to their end, and the worker
//     drops its weights when it needs the room. A new request of it is HTTP 404.
//   - Prefixes are kept by the name and the directory of the adapter, so that none is another version's.
//   - With --max-loras 1 a switch works: responses of two adapters are never under way together.
//   - Loading from a directory that does not exist is HTTP 404 and changes nothing.
//
// # Text
//
//   - /tokenize reads the spelling of a special token as that token, in messages too.
//     /detokenize writes special tokens out, and ids that do not exist as nothing.
//     /v1/completions/derender leaves special tokens out; it needs --enable-scale-out.
//   - /tokenize renders a chat that is longer than the context without a word.
package vllm
