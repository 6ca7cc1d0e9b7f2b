// Package batch turns a leased batch into a trainer's input and back. The batch is packed, ragged
// tensors in one safetensors body, as package protocol describes it, whole or divided over
// data-parallel ranks.
//
// Everything is checked before it leaves: shapes that agree, token ids inside the
// vocabulary, finite log-probs and advantages, versions that exist. A rule that does not hold is an
// error that names the rollout and the token; nothing is trained on silently.
package batch
