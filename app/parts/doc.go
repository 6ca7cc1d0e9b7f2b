// Package parts makes the running parts of a document, of every kind: task and verifier, engines, trainer,
// environment, weights, fleet and sandboxes.
//
// [New] takes a document and makes what needs no directory, so that a bad document leaves nothing behind.
// [Parts.Build] opens the rest. [Parts.Close] closes in the reverse order of opening and joins every error. Functions of
// a document alone serve commands that look at a document or a server without a run.
package parts
