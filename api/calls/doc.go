// Package calls tells a policy's calls of tools and its reasoning from the rest of what it has said,
// while a response arrives.
//
// A family of models has a [Grammar]: how its calls are written, and which of the words in that are
// tokens of their own. A [Scanner] reads one response: texts, and between them the tokens that are such
// words. So a word of the frame that the policy quotes, letter by letter, is text. Where a tokenizer has
// no token for a word, its letters count instead.
//
// A call is said as it comes: its name once, then its arguments. Arguments that are JSON come in pieces
// that were valid up to there. Arguments between tags are typed by the tool's schema, and come one by one
// once each is complete. Grammars without a frame (llama3, pythonic) are decided at the end of a response.
//
// The result does not depend on where a response is cut. An attempt that is no call stays text, whole, and
// is counted by its [Status]. Nothing is corrected and nothing sampled again.
package calls
