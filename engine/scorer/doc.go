// Package scorer has teachers and references score what a policy sampled. A [Pool] sends the tokens of a finished
// rollout to servers of vLLM or SGLang. Their answers say how likely each sampled token is under their own model, and
// which tokens are the likeliest there. The pool bounds the calls to each server, tries them again elsewhere, and takes no answer
// that is of other tokens than were sent.
package scorer
