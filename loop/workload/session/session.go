// Package session is recorded work for engines: sessions of calls, as agents and clients of a
// server make them, with the prefixes that calls share.
//
// It holds no text. Equal block identifiers mean equal tokens from the start of the input, so that a
// prefix cache can be modelled without them.
package session

// Session is one conversation: calls one after another.
type Session struct {
	// ID is the source's own name of it, or its number.
	ID string
	// Group counts prompts from 0, Sample the rollouts of one; both 0 where a source has no groups.
	Group, Sample int
	// StartS is when its first call comes, in seconds from the start of the record; 0 where a source has no times.
	StartS float64
	// Calls in their order.
	Calls []Call
	// Agents are sessions of sub-agents, which begin at StartS in seconds after this one's start.
	Agents []Session
}

// Call is one request to a model.
type Call struct {
	// GapS is the time between the end of the call before and this one, in seconds: tools, people. 0 for
	// none, and for the first.
	GapS float64
	// TookS is how long the recorded server took for it, in seconds; 0 where a source has no times.
	TookS float64
	// InputTokens are the whole context that the call sends, OutputTokens are generated.
	InputTokens, OutputTokens int
	// Blocks are the identifiers of the input's whole blocks of the record's block size in tokens, in order. A
	// block's identifier names all tokens from the start of the input to its end. Nil where a source has
	// none: the input then begins with the input and the output of the call before.
	Blocks []uint64
}
