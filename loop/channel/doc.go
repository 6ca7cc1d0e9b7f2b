// Package channel describes side channels of a rollout's tokens, and joins what several answers bring of them.
//
// A side channel has one row of numbers for a token, or for a pass of the model. Examples are the experts that a pass
// was routed to, the tokens that a truncated distribution kept, and a teacher's log-probs. An engine or a scorer says
// them beside tokens and log-probs. The bytes lie in blobs of their own. This package knows their form ([Header]) and
// their places ([Part]), and never their values.
//
// A sequence grows by answers: by turns of a conversation, and by calls that go on where one was interrupted. The rules
// by which their rows are joined stand here alone, so that a worker, an engine and a batch agree on them.
package channel
