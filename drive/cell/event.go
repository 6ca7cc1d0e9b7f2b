package cell

import (
	"github.com/headway-rl/headway/loop"
)

// Event is a word of a cell: an event as the loop takes it, and the figures that belong to it. It has values alone, so
// that it can be sent.
//
// StartRollout and ResumeRollout are answered by RolloutInterrupted, RolloutScored, RolloutFailed or RolloutAborted.
// LoadWeights is answered by WeightsLoaded or SyncFailed, SwitchWeights by WeightsSwitched or SyncFailed. FirstToken and
// EngineLost answer nothing.
type Event struct {
	// Event is the loop's. Time is the cell's clock. Made is nil: whether the loop wants it is not the cell's to know.
	loop.Event
	Facts
	// Error is why it has failed, in words for the log; empty where nothing has.
	Error string
	// Down, of SyncFailed: the engine cannot be reached, or does not answer any more.
	Down bool
	// Fatal: the cell can go on with no rollout, because its store takes no payloads. Cell.Err has the error.
	Fatal bool
}

// Facts are what the loop does not see of a rollout that was scored. Of other events all are 0, but for GenerateNS of a
// rollout that was pruned.
type Facts struct {
	// GenerateNS is the time that its calls took at engines, EnvironmentNS the time in its environment, in nanoseconds.
	// The time for which it stood interrupted is in neither.
	GenerateNS, EnvironmentNS int64
	// ByVersion are the response's tokens by the version that sampled them, in the order in which they were made.
	// VersionTokens is the sum of these versions over the tokens.
	ByVersion     []loop.VersionTokens
	VersionTokens int64
	// Spans is how many runs of tokens of one version, between interruptions, the response is made of.
	Spans int
	// Resumed says that the rollout was resumed after an interruption. StateLag is the age, at its last resumption, of the
	// oldest tokens that made the state of its environment. It is counted in versions, and is 0 without a resumption.
	Resumed  bool
	StateLag int64
}
