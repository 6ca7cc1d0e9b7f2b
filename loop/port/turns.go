package port

import "errors"

// ErrUnkept is wrapped by the error of a Play whose rollout a process before this one began, and did not keep.
var ErrUnkept = errors.New("the rollout was not kept over a restart")

// Turns is implemented by stores that keep the turns of an attempt until its payload has them. They go when [Store.Forget]
// and [Store.Discard] say that the attempt is no longer needed, and with the payload of a later one.
// All methods are safe for concurrent use, also beside those of the Store.
type Turns interface {
	// KeepTurn keeps data under a number that the attempt has not used. It is durable when KeepTurn returns. An error that
	// wraps ErrNoSpace has kept nothing.
	KeepTurn(id RolloutID, number int32, data []byte) error
	// KeptTurns returns how many there are of an attempt, up to the first number that is missing.
	KeptTurns(id RolloutID) int
	// ReadTurns returns them, by rising number from 0.
	ReadTurns(id RolloutID) ([][]byte, error)
	// KeptBlobs returns the numbers of an attempt's blobs ([Blobs]), in any order. A process that goes on with the attempt uses
	// higher ones.
	KeptBlobs(id RolloutID) []int32
	// UnkeepTurns has the attempt end with this process: once it returns, no other finds a turn of it. An error says that one
	// goes on with it, or may.
	UnkeepTurns(id RolloutID) error
	// DropTurns says that the turns of an attempt are no longer needed. A restart may find them again.
	DropTurns(id RolloutID)
	// RetainTurns drops, after a restart and before anything else is kept, the turns of every attempt that does not stand. So it
	// does with blobs of one that has no payload. Those of an attempt that stands are there until it ends.
	RetainTurns(stands func(RolloutID) bool)
}

// Restorer is implemented by environments that go on with rollouts which a process before this one played. Such a rollout
// stands interrupted when it is taken up.
type Restorer interface {
	// Restoring is called once in the place of Starter.Starting. It must not block.
	Restoring(task RolloutRequest)
	// Restore makes the rollout what it was, and returns how far it had come. Play of the same task follows, and returns
	// an error that wraps ErrUnkept where that is not known any more. The sampler is not called before Restore has returned.
	Restore(task RolloutRequest) Progress
}

// Progress is how far a rollout has come: how many turns have ended, and how many tokens the policy has sampled in them. Blobs is
// above the numbers of all blobs that they name.
type Progress struct {
	Turns, Sampled int
	Blobs          int32
}
