package foreign

import (
	"errors"
	"slices"
)

// errVerlSynchronous is the error of a log of verl's synchronous trainer. Its timing_s/gen is a step's generation and not
// a wait for engines of their own, so that no advice would fit.
var errVerlSynchronous = errors.New("this is a log of verl's synchronous trainer, which is not read: its trainer and engines take turns, so nothing is stale. " +
	"The fully asynchronous trainer logs fully_async/* keys, and the v1 trainer logs training/off_policy/* in every step; neither is here")

// synchronousVerl reports whether what counts as a log of one of verl's asynchronous trainers is of the synchronous one:
// its steps generate, and no key is there that either asynchronous trainer always logs.
func (e *evidence) synchronousVerl(f *Framework) bool {
	if f != verlV1 && f != verlFullyAsync || !e.seen["timing_s/gen"] {
		return false
	}
	for key := range e.seen {
		if slices.ContainsFunc(slices.Concat(verlV1.Marks, verlFullyAsync.Marks), func(mark string) bool { return fits(mark, key) }) {
			return false
		}
	}
	return true
}
