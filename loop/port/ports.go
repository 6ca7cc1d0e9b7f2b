package port

import (
	"context"
	"errors"
	"io"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/trace"
)

// RolloutID names one attempt at one rollout. Everything random about the
// rollout is a function of the run's seed and this.
type RolloutID struct {
	Group   loop.GroupID `json:"group"`
	Sample  int32        `json:"sample"`
	Attempt int32        `json:"attempt"`
}

// RolloutRequest is one rollout attempt as an environment plays it.
type RolloutRequest struct {
	// ID is the attempt's identity.
	ID RolloutID
	// Prompt is the number of the prompt in the prompt set, from 1. 0 stands for a prompt of the
	// group's own, numbered like the group.
	Prompt int64
	// Level is the difficulty, from 1; 0 where none was chosen.
	Level int32
	// Version is the start version of its group, the same for all of them.
	Version loop.Version
}

// PromptNumber is what the problem is a function of, beside the run's seed and the level.
func (t RolloutRequest) PromptNumber() uint64 {
	if t.Prompt != 0 {
		return uint64(t.Prompt)
	}
	return uint64(t.ID.Group)
}

// Engine is a rollout engine: it samples tokens in a number of slots at once and
// can change its weights. All methods are safe for concurrent use.
type Engine interface {
	// Name says which engine this is, in logs and status.
	Name() string
	// Slots is how many generations may run at once; the runtime never asks for more.
	Slots() int
	// Generate samples one response. It returns when the response is complete. It returns the partial
	// response soon after the request's Interrupt is closed or its Check has stopped the response.
	// Soon after the context is done it returns the context's error, and beside it what was sampled so
	// far, where it is known. An error that wraps ErrEngineDown says that the engine is gone: with
	// what stands beside it the response goes on elsewhere.
	Generate(ctx context.Context, req GenerateRequest) (Generation, error)
	// Load fetches a version beside the one that is served. Generation goes on.
	Load(ctx context.Context, version loop.Version) error
	// Switch serves the loaded version from the next token on, of running
	// generations too. Under hold, no token is sampled while it takes place.
	// On an error the engine's weights count as unknown.
	Switch(ctx context.Context, version loop.Version, hold bool) error
	// Close stops the engine and ends running generations with an error.
	Close() error
}

// GenerateRequest asks for one response, or for the rest of one.
type GenerateRequest struct {
	// Rollout is the attempt this is for; Turn counts its generations from 0.
	Rollout RolloutID
	Turn    int
	// Prompt holds the token ids before the response.
	Prompt []int32
	// Media stand in the prompt, in order; nil for none. An engine that cannot take them returns an error that wraps
	// ErrMedia, and samples nothing.
	Media []media.Item
	// Prefix is the part of the response that was sampled before it was interrupted, on whichever
	// engine; empty for a new response. The engine takes prompt and prefix in under the weights it
	// serves, samples on, and returns the whole. The draw for a token depends on the token's place in
	// the response, not on the place of a resumption.
	Prefix Prefix
	// MaxTokens ends the response, prefix included, at that many tokens; at least 1.
	MaxTokens int
	// FirstToken, if not nil, is called once with the version that sampled the
	// first token, before Generate returns. It does not block. It is nil with a prefix.
	FirstToken func(loop.Version)
	// Interrupt, if not nil, is closed when the generation is to stop and keep what it has.
	Interrupt <-chan struct{}
	// Check, if not nil, is called with the response so far after every token that
	// does not complete it; true stops the response. It must be cheap, keep nothing
	// and change nothing: an engine may call it between two steps of all its slots.
	Check func(tokens []int32) bool
	// Sampling says how tokens are drawn; nil is by the policy as it is: temperature 1,
	// nothing cut off. Engines that can do nothing else refuse any other.
	Sampling *Sampling
	// OnTokens, if not nil, is called with what has been sampled since the last call, by one
	// goroutine at a time and before Generate returns. It must not keep the slices.
	OnTokens func(Delta)
	// Keep, if not nil, is called with what the engine says of side channels, by one goroutine at a time and before
	// Generate returns. It is called for every call to the server, once the call's tokens are known to stay. An engine
	// without channels never calls it. Known is the first row of passes that is wanted.
	Keep  func(Rows)
	Known int
}

// Sampling says how tokens are drawn and where a response ends beside the end of sequence.
type Sampling struct {
	// Temperature divides the logits; 0 takes the likeliest token.
	Temperature float64
	// TopP, TopK and MinP cut the distribution; 1 (or 0), 0 and 0 cut nothing.
	TopP float64
	TopK int
	MinP float64
	// Stop are texts that end a response, StopTokens ids. Neither has the end of sequence in it.
	Stop       []string
	StopTokens []int32
}

// Policy reports whether tokens are drawn from the policy as it is.
func (s *Sampling) Policy() bool {
	return s == nil || s.Temperature == 1 && (s.TopP == 0 || s.TopP == 1) && s.TopK == 0 && s.MinP == 0
}

// Delta is a piece of a response as it arrives, one entry a token; Text may lag behind.
type Delta struct {
	Tokens   []int32
	Logprobs []float32
	Text     string
}

// Prefix is the beginning of a response, one entry a token in every slice.
type Prefix struct {
	Tokens   []int32
	Logprobs []float32
	Versions []loop.Version
	// Text of the tokens. TextPartial: it lacks that of some, because an engine says none or had held
	// it back when the response was interrupted.
	Text        string
	TextPartial bool
	// Derived: at least one version was derived from a switch and not reported by the engine.
	Derived bool
}

// Generation is one sampled response, the request's prefix included. The slices
// have one entry a token, the end-of-sequence token included where there is one.
type Generation struct {
	Tokens []int32
	// Logprobs are the log-probabilities under the policy that sampled, in nats.
	Logprobs []float32
	// Versions are the policy versions that sampled each token. They may fall from
	// one to the next where a response was resumed on an engine that lags behind.
	Versions []loop.Version
	// Truncated: MaxTokens was reached without an end of sequence.
	Truncated bool
	// Interrupted: the response is not complete, because Interrupt was closed.
	Interrupted bool
	// Pruned: the response is not complete, because Check stopped it.
	Pruned bool
	// Text of the response, the request's prefix included, without special tokens; empty where the
	// engine says none. TextPartial: it lacks that of some tokens, for sure or perhaps.
	Text        string
	TextPartial bool
	// Derived: at least one version was derived from when the engine switched, and not reported by it.
	Derived bool
	// Resumes are the places in Tokens at which the rollout went on after an interruption since the
	// response before. Those while its environment was at work come first. The Sampler fills them in.
	Resumes []ResumePoint
	// Channels are the side channels that came with the response. Rows of passes count from the beginning of the
	// prompt, others from that of the response. The Sampler fills them in.
	Channels []channel.Channel
}

// Prefix returns what there is of an interrupted response, to go on from.
func (g Generation) Prefix() Prefix {
	return Prefix{g.Tokens, g.Logprobs, g.Versions, g.Text, g.TextPartial, g.Derived}
}

// ErrEngineDown is wrapped by the error of an engine that cannot be reached or does not answer
// any more. Beside it stands what was sampled so far: the rollout goes on with it elsewhere.
var ErrEngineDown = errors.New("the engine is down")

// SampleRequest asks a Sampler for one response. Prompt, Media, MaxTokens and Check mean
// what they do in GenerateRequest.
type SampleRequest struct {
	Prompt    []int32
	Media     []media.Item
	MaxTokens int
	Check     func(tokens []int32) bool
	// Final says that the reward follows the response at once. A response that is
	// complete when an interruption reaches it is then scored instead of interrupted.
	Final bool
	// Sampling, OnTokens and Known mean what they do in GenerateRequest.
	Sampling *Sampling
	OnTokens func(Delta)
	Known    int
	// Dropped, if not nil, is closed when the response is no longer wanted. Sample returns ErrDropped
	// soon after, wherever the rollout stands, and the rollout goes on as if it had never been asked.
	// A response that is complete by then may be returned all the same.
	Dropped <-chan struct{}
}

// ErrEnded is the cause with which a rollout's context ends where the runtime ends before it has finished. The runtime does
// not know whether the rollout's score is in the log.
var ErrEnded = errors.New("the runtime has ended")

// ErrDropped is the error of a Sampler whose request was dropped.
var ErrDropped = errors.New("the response was dropped")

// Sampler is what an environment samples with: an engine's slot, bound to one
// rollout. A call lasts until the response is complete or pruned, however often
// the rollout is interrupted and resumed elsewhere meanwhile.
type Sampler interface {
	Sample(ctx context.Context, req SampleRequest) (Generation, error)
}

// Environment turns a rollout into a scored sample: it makes the prompt of a
// group, lets the policy answer, uses tools and verifies.
type Environment interface {
	// Play plays one rollout to its reward. All rollouts of a group get the same prompt. An error is a
	// failure of the environment, never a reward of 0. Between two responses a rollout may be
	// interrupted without noticing. Play goes on, and its next call of the sampler, or its end, waits
	// for the rollout to be resumed.
	Play(ctx context.Context, task RolloutRequest, sampler Sampler) (Sample, error)
}

// ErrData is wrapped by the error of a Play whose task cannot be played or judged. It is not played again;
// after any other error it is.
var ErrData = errors.New("the task cannot be scored")

// Starter is implemented by environments that need the order in which the loop starts rollouts. Each
// rollout is played by a goroutine of its own, and goroutines begin in any order.
type Starter interface {
	// Starting is called once before every Play, with its task, in the order in which the loop starts
	// rollouts. It must not block: the goroutine that owns the loop calls it.
	Starting(task RolloutRequest)
}

// Acknowledger is implemented by environments that owe somebody word of a rollout.
type Acknowledger interface {
	// Logged is called once for every Play that returned, with an error or without. It is called after the end of that attempt
	// and everything before it are in the event log. Store.Append has then returned for its RolloutScored,
	// RolloutFailed or RolloutAborted. The flag counted says that the loop took it as the score of an attempt that
	// counts; such a score's payload is durable as well. An attempt that the loop gave up while it stood interrupted
	// leaves nothing in the log, and is told false. It must not block: the goroutine that owns the loop calls it, or
	// the one that played. The context that Play was given ends after a call that says true. It ends before one that
	// says false where the loop gave the attempt up. At the end of the run it ends without a call.
	Logged(id RolloutID, counted bool)
}

// Group is a ready group on its way to the trainer.
type Group struct {
	ID                         loop.GroupID
	StartVersion, ReadyVersion loop.Version
	// Rollouts is how many scored rollouts the loop leased, Samples their payloads.
	Rollouts int
	Samples  []Sample
	// Counted names the attempts that the loop has counted: Samples are theirs. The runtime fills it in.
	Counted []RolloutID
}

// ErrNotReady is wrapped by the error of a group that is not ready to be trained, or has been trained or dropped.
var ErrNotReady = errors.New("the group is not ready to be trained, or has ended")

// Batch is what one train step consumes.
type Batch struct {
	Lease   loop.LeaseID
	Attempt int32
	// Version is the one the step starts from; it produces Version+1.
	Version loop.Version
	Groups  []Group
}

// StepReport is what a train step says of itself.
type StepReport struct {
	// Rollouts and Tokens (prompt and response) that were trained on.
	Rollouts, Tokens int
	// Loss, GradNorm of the step.
	Loss, GradNorm float64
	// ClipFraction is the share of response tokens with a ratio outside the band,
	// ActiveClipFraction of those that lost their gradient.
	ClipFraction, ActiveClipFraction float64
	// MeanLogRatio is the mean of log p_trainer − log p_rollout per response token, in nats.
	MeanLogRatio float64
	// EffectiveSampleSize is ESS/N of the importance weights, 0 to 1.
	EffectiveSampleSize float64
	// MeanWeight and MaxWeight are of the importance ratios p_trainer/p_rollout.
	MeanWeight, MaxWeight float64
	// MaskedFraction is the share of response tokens that a mask kept out of the
	// gradient, TruncatedFraction of those whose weight was cut to its bound.
	MaskedFraction, TruncatedFraction float64
	// MeanProximalLogRatio is the mean of log p_start − log p_rollout, p_start the policy
	// the step began with: staleness and numerics without what the step itself moved.
	// It is MeanLogRatio where the step has one minibatch.
	MeanProximalLogRatio float64
	// PredictedClipFraction is what the drift measured in earlier steps says of this
	// step's ClipFraction; 0 while too little was measured.
	PredictedClipFraction float64
	// Minibatches is the number of optimizer steps taken, at least 1.
	Minibatches int
	// Health is healthy, workable, strained or broken, by clip fraction and log-ratio; empty where the trainer does not say.
	Health string
	// TokenLag splits the response tokens by the number of versions before the step's at which they
	// were sampled, GroupLag by the staleness of their group. Both have the ranges of LagRange.
	TokenLag, GroupLag [LagRanges]LagReport
	// Drifts has the drift of each group of the batch, in its order; nil where the trainer does not measure it.
	Drifts []GroupDrift
	// LogRatios has, of samples of the batch, log p_start − log p_rollout of each token in nats, by index of
	// Sample.Tokens. It is 0 where the policy did not sample the token, and nil where the trainer does not
	// keep them.
	LogRatios map[RolloutID][]float32
	// Metrics are further figures of the step under the trainer's own names; nil for none.
	Metrics map[string]float64
}

// LagRanges is the number of ranges of staleness that a StepReport tells apart.
const LagRanges = 6

// LagRange names a range of staleness in versions: 0, 1, 2, 3-4, 5-8, 9+.
func LagRange(i int) string { return [LagRanges]string{"0", "1", "2", "3-4", "5-8", "9+"}[i] }

// LagReport is what a train step says of the response tokens of one range of
// staleness. Its fields mean what those of StepReport do; all are 0 without tokens.
type LagReport struct {
	Tokens                            int
	ClipFraction, ActiveClipFraction  float64
	PredictedClipFraction             float64
	MeanLogRatio, EffectiveSampleSize float64
	MeanWeight, MaxWeight             float64
	MaskedFraction                    float64
}

// GroupDrift is the distance of a group's tokens from the policy that a step began with. It is the
// mean of |log p_start − log p_rollout| over its response tokens, in nats.
type GroupDrift struct {
	Group loop.GroupID
	Drift float64
}

// ErrLeaseReturned is wrapped by the error of a Trainer's Train that gives the batch back
// untrained. The batch goes back to the queue, and no attempt at the step counts as failed.
var ErrLeaseReturned = errors.New("the batch was given back untrained")

// Trainer trains on one batch at a time.
type Trainer interface {
	// Train makes one step from batch.Version and publishes batch.Version+1 with
	// batch.Lease as what produced it; it returns once that version is whole. An error that
	// wraps ErrLeaseReturned gives the batch back.
	Train(ctx context.Context, batch Batch) (StepReport, error)
	// Restore takes the trainer (weights and optimizer) to a published version. The lease outstanding is the one that
	// the run's log holds out, 0 for none. Unless its version is published, Train is called with it
	// again; until then it is neither lost nor over.
	Restore(ctx context.Context, version loop.Version, outstanding loop.LeaseID) error
	// Initialize makes version 0 from the run's seed and publishes it.
	Initialize(ctx context.Context) error
	// Close frees what the trainer holds.
	Close() error
}

// Tensor is a float32 tensor of a version. Data is row-major and read-only.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// Publication is one version on its way to the store of weights.
type Publication struct {
	Version loop.Version
	// Lease is the batch that produced it; 0 for version 0.
	Lease loop.LeaseID
	// Model tensors are what engines serve; Optimizer tensors are the trainer's alone.
	Model, Optimizer []Tensor
}

// Weights keeps published versions, each whole or not there at all.
type Weights interface {
	// Publish stores a version. Publishing one that exists is an error, unless it is the same.
	Publish(ctx context.Context, p Publication) error
	// Model and Optimizer read a version's tensors and verify them against its manifest.
	Model(ctx context.Context, version loop.Version) ([]Tensor, error)
	Optimizer(ctx context.Context, version loop.Version) ([]Tensor, error)
	// Committed returns the lease that produced a published version, and whether it is there.
	Committed(version loop.Version) (lease loop.LeaseID, ok bool, err error)
	// Prune deletes versions below keepFrom.
	Prune(keepFrom loop.Version) error
}

// Asider is implemented by stores of weights that can take a version out of the run. Such a version
// was published by a writer after another had taken over, from a batch that the run had given to a
// third.
type Asider interface {
	// SetAside takes a published version out of the way; it must never be served.
	SetAside(version loop.Version) error
}

// Lister is implemented by stores of weights that can list what they hold.
type Lister interface {
	// Versions that are published, with or without weights, ascending.
	Versions() ([]loop.Version, error)
}

// Store keeps the run's event log and the payloads of groups.
type Store interface {
	// Append adds lines to the event log; when it returns they survive the end of this process. An
	// error that wraps ErrNoSpace has added none of them, and the same lines are appended again later.
	Append(lines [][]byte) error
	// PutSample makes a rollout's payload durable before its event is appended. After an error that
	// wraps ErrNoSpace the same payload is put again later.
	PutSample(s Sample) error
	// Samples returns the payloads of a group in the order of their sample numbers; a
	// later attempt has replaced an earlier one.
	Samples(group loop.GroupID) ([]Sample, error)
	// Discard says that the payload of one attempt counts for nothing, while its group
	// lives on. An attempt whose payload is not there, or not any more, is no error.
	Discard(id RolloutID) error
	// Forget says that a group's payloads are no longer needed.
	Forget(group loop.GroupID) error
	// Header returns what the log's first line says, and whether it has one: not, before the
	// first Append of a run. A log may give up old lines, never this one.
	Header() (h trace.Header, ok bool)
	// Snapshot keeps a state of the run as of the log's first line lines, all of which have been
	// appended before. It has been read back when the call returns. A store keeps the newest two that verify,
	// and may give up the lines before the older of them, where its log is bounded. Appends and all else go on beside it.
	Snapshot(line int64, state []byte) error
	// ReadSnapshot returns the newest snapshot as of fewer than before lines, and its line; a
	// nil state if there is none. For one that does not verify, or is ahead of the log, it returns
	// its line and an error that wraps ErrSnapshotDamaged.
	ReadSnapshot(before int64) (line int64, state []byte, err error)
	// ReadLog returns the log's lines after the first line lines, as it is now; 0 begins with the
	// header. Lines that have been given up are an error that wraps ErrLogTrimmed.
	ReadLog(line int64) (io.ReadCloser, error)
	// Retain forgets, after a restart and before anything else is put, every payload that is of an
	// attempt that does not count. It returns their number.
	Retain(counts func(RolloutID) bool) (dropped int, err error)
	// Close flushes and closes.
	Close() error
}

// ErrSnapshotDamaged is wrapped by the error of a snapshot that cannot be used; one before it may.
var ErrSnapshotDamaged = errors.New("it cannot be used")

// ErrLogTrimmed is wrapped by the error of a log that is asked for lines it has given up.
var ErrLogTrimmed = errors.New("the log has given up these lines")

// Bounded is implemented by stores whose log has a limit.
type Bounded interface {
	// WantsSnapshot reports that the log nears its limit, so that a snapshot is due: the lines
	// before it can then be given up. It must not block.
	WantsSnapshot() bool
}

// Timed is implemented by engines that measure their decode steps, so that a run
// can be resimulated with its own speeds.
type Timed interface {
	// SetTrainerBusy says whether a train step runs from now on.
	SetTrainerBusy(busy bool)
	// TakeDecodeTimes returns what was measured since the last call.
	TakeDecodeTimes() []trace.ServiceCell
}
