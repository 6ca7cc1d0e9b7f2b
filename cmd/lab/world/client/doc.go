// Package client restates the rules of the Python client in Go, over net/http: a [Trainer] and a [Worker]. It shares
// no code with the control plane, so that a mistake does not stand on both sides.
//
// The scripts in testdata hold it to the Python client. Each has the answers of a server, the requests that must come,
// and bounds of the waits between them. The tests of this package play every script against this package, in virtual
// time. clients/python/tests/test_scripts.py plays the same scripts against the Python client.
//
// # Restated
//
//   - transport.py, answers: the statuses and errors that are tried again, and the bound on answers of 500.
//   - transport.py, waits: pauses with their jitter, Retry-After and patience.
//   - transport.py, limits: those of connecting, writing and reading, each between two bytes.
//   - transport.py, tries: one Idempotency-Key a call, and the note that a failed call may have been done.
//   - transport.py, addresses: the next one after a failure, once for calls that fail there together.
//   - errors.py: the class of a refusal, by its code or else by its status.
//   - client.py, steps: connect and its actions, lease, publish, ack, nack, restore and load.
//   - client.py, the rest: validation, ranks above 0, the give-back of a batch when a loop is left, and the refusals
//     that need no server.
//   - lease.py: the times of renewals, the patience of each, and the answers that end them.
//   - store.py: manifests, files that are read as they come, transfers that go on where they broke off, and hashes.
//   - publication.py: a manifest alone for files in a directory, else multipart with sizes and hashes.
//   - batch.py: the header, and the checks of tokens, masks, log-probs and versions.
//   - claims.py and failures.py: claims, touches, finishes, pauses after failures, and the end of a worker.
//   - play.py and single_turn.py: samples by tokens, chats with the claim's key, and their end with the claim.
//   - The loop of [Trainer.Run] is that of examples/numpy_trainer.
//
// # Not restated
//
//   - TLS, and mistakes of the setting that are raised at once because of it.
//   - Senders and collectives: sender.py, outbox.py, shelf.py, collective.py and meeting.py.
//   - The program as a child process: serving.py and call.py. All analysis.
//   - Of a batch: the comparison of log-probs, side channels' rows, media, agents, and several sequences of a rollout.
//     [Batch.Part] fetches bytes of channels and media unread.
//   - The refusal of weights that are not finite: a step changes one number of a tensor.
//   - Metrics of a step. Results that were sampled elsewhere, coroutines, and the bound on a verdict's time.
//   - The log.
//
// An [Agent] speaks as a program with OpenAI's library does. The scripts do not hold it.
//
// # Where net/http differs
//
// net/http sends a GET again by itself when a connection that was kept turns out to be closed. The Python client looks
// at the connection before it uses it. A call that changes something is sent once a try on both sides. A context that
// ends aborts a call at once. The Python client has nothing like it but the end of its process.
package client
