// Package sessions reads recorded sessions: a file of another program's, or a run of this one.
//
// The episodes of a run have the tokens and the times of every turn. Where a run has none, its trace has a rollout as
// one call, without the length of its prompt.
package sessions
