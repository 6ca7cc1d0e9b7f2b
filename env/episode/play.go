package episode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
)

// Classes of failure that are not a sandbox's.
const (
	// PolicyFailed: the engine, or a part between it and here, gave no message.
	PolicyFailed sandbox.Class = "policy"
	// WorldFailed: the world failed and did not say how.
	WorldFailed sandbox.Class = "world"
	// Unwanted: the caller has given the rollout up.
	Unwanted sandbox.Class = "unwanted"
)

// Options of an episode.
type Options struct {
	// Rollout names the attempt in the record and to who judges: g12-s3-a1.
	Rollout string
	// TurnsMax bounds the policy's messages where the task does not. 0 is 1 without a world, 16 with.
	TurnsMax int
	// Timeout bounds the episode where the task does not, its verdict included. 0 is none.
	Timeout time.Duration
	// Clock is nanoseconds since the run's start. Nil is the time since Play was called.
	Clock func() int64
	// Earlier are steps that a process before this one played, up to the last message that is known. They are played again:
	// the policy has to say the same, and the world has to answer alike. The chat goes on with what it answered then.
	Earlier []Step
	// Note is told of each step that is new, before the policy is asked for the next message. It may be nil.
	Note func(Step)
}

// rewardMax is the largest reward of a step that can still be added up and kept as a float32.
const rewardMax = 1e30

// play is an episode under way.
type play struct {
	task   *taskset.Task
	policy Policy
	world  World // nil for none
	judge  verifier.Verifier
	o      Options
	spans  *recorder

	out      Outcome
	said     bool
	earlier  []Step // those that are still to be taken again
	tokens   []TurnTokens
	steps    []float64
	rewarded bool
}

// Play plays a rollout to its verdict. World is nil for a single turn that nothing answers, judge nil
// where the world's rewards of its steps, added up, are the verdict. The caller closes both; the world
// only after Play has returned.
//
// An error is a rollout that was not judged. It wraps a [sandbox.Failure] that says why. Where the
// caller's context has ended it wraps the context's error instead. That of an episode whose own time
// was over wraps context.DeadlineExceeded beside. The outcome of one has its record all the same.
func Play(ctx context.Context, task *taskset.Task, policy Policy, world World, judge verifier.Verifier, o Options) (Outcome, error) {
	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() int64 { return time.Since(began).Nanoseconds() }
	}
	if task.TurnsMax > 0 && (o.TurnsMax <= 0 || task.TurnsMax < o.TurnsMax) {
		o.TurnsMax = task.TurnsMax
	}
	if o.TurnsMax <= 0 {
		o.TurnsMax = 1
		if world != nil {
			o.TurnsMax = 16
		}
	}
	if own := time.Duration(task.TimeoutS * float64(time.Second)); own > 0 && (o.Timeout <= 0 || own < o.Timeout) {
		o.Timeout = own
	}
	p := &play{task: task, policy: policy, world: world, judge: judge, o: o, earlier: o.Earlier, spans: newRecorder(o.Clock)}
	p.out.Messages = slices.Clone(task.Messages)
	p.out.StateLow, p.out.StateHigh = -1, -1
	limited, cancel := context.WithCancel(p.spans.in(ctx))
	defer cancel()
	if o.Timeout > 0 {
		var over context.CancelFunc
		limited, over = context.WithTimeout(limited, o.Timeout)
		defer over()
	}
	err := p.run(limited)
	if err != nil {
		err = p.failure(ctx, limited, err)
	}
	p.record(err)
	return p.out, err
}

func (p *play) run(ctx context.Context) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	for done := false; !done; {
		var err error
		if done, err = p.turn(ctx); err != nil {
			return err
		}
	}
	if len(p.earlier) > 0 {
		return p.otherwise("the chat has ended")
	}
	p.spans.turn(max(p.out.Turns-1, 0))
	return p.verdict(ctx)
}

func (p *play) begin(ctx context.Context) error {
	first := Step{Task: p.task.ID}
	if p.world != nil {
		p.spans.enter(Tool, "begin")
		var err error
		if first.Heard, err = p.world.Begin(ctx, p.task); err != nil {
			return p.failed(ctx, "begin", err)
		}
	}
	messages, err := p.heard(first)
	p.out.Messages = append(p.out.Messages, messages...)
	return err
}

// turn has the policy speak and the world answer. It reports whether the chat ends with it.
func (p *play) turn(ctx context.Context) (done bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	p.spans.turn(p.out.Turns)
	p.spans.enter(Model, "")
	var tools json.RawMessage
	if p.world != nil {
		tools = p.world.Tools()
	}
	message, err := p.policy.Say(ctx, p.out.Messages, tools)
	switch {
	case errors.Is(err, ErrNoRoom) && p.said:
		p.out.Truncated = true
		return true, nil
	case errors.Is(err, ErrNoRoom):
		return false, sandbox.Fail(sandbox.BadTask, "say", "", "before its first message: %w", err)
	case err != nil && sandbox.ClassOf(err) == "":
		return false, sandbox.Fail(PolicyFailed, "say", "", "%w", err)
	case err != nil:
		return false, err
	}
	p.said = true
	p.out.Turns++
	p.tokens = append(p.tokens, TurnTokens{message.Prompt, message.Tokens})
	p.out.Response = message.Text
	p.out.Messages = append(p.out.Messages, message.Raw)
	if p.out.Truncated = message.Finish == "length"; p.out.Truncated || p.world == nil {
		return true, nil // what reached its limit may be half a call
	}
	return p.act(ctx, message)
}

// act has the world answer a message. A last message is answered, too: its calls may make the state
// that is judged.
func (p *play) act(ctx context.Context, message Message) (done bool, err error) {
	p.spans.enter(Tool, "")
	answer, err := p.world.Act(ctx, message)
	if err != nil {
		return false, p.failed(ctx, "act", err)
	}
	if answer.Limit != "" {
		p.spans.markOnce(answer.Limit)
	}
	p.stated(message)
	step := 0.0
	if answer.Rewarded {
		p.rewarded, step = true, answer.Reward
		if !(math.Abs(step) <= rewardMax) {
			return false, sandbox.Fail(sandbox.Protocol, "act", "", "the world's reward of turn %d is %v, which is no number that can be trained on", p.out.Turns-1, step)
		}
	}
	p.steps = append(p.steps, step)
	messages, err := p.heard(Step{Heard: answer.Messages})
	if err != nil {
		return false, err
	}
	p.out.Messages = append(p.out.Messages, messages...)
	if answer.Done || len(answer.Messages) == 0 {
		return true, nil
	}
	p.out.TurnsSpent = p.out.Turns >= p.o.TurnsMax
	return p.out.TurnsSpent, nil
}

// stated keeps the versions that made the world's state.
func (p *play) stated(message Message) {
	if world, ok := p.world.(Stated); ok {
		p.out.StateLow, p.out.StateHigh = world.State()
		return
	}
	if p.out.StateLow < 0 || message.VersionLow < p.out.StateLow {
		p.out.StateLow = message.VersionLow
	}
	p.out.StateHigh = max(p.out.StateHigh, message.VersionHigh)
}

// verdict has the rollout judged, or adds up what its steps were worth.
func (p *play) verdict(ctx context.Context) error {
	if p.judge == nil {
		return p.sum()
	}
	c := verifier.Case{Task: p.task, Rollout: p.o.Rollout, Response: p.out.Response, Messages: p.out.Messages, Truncated: p.out.Truncated}
	if world, ok := p.world.(Boxed); ok {
		c.Box = world.Box()
	}
	v, err := p.ask(ctx, c)
	if err != nil {
		return err
	}
	if !(math.Abs(v.Reward) <= rewardMax) { // a verifier without a Bounded around it
		return sandbox.Fail(sandbox.VerifierProtocol, "verify", "", "the reward is %v, which is no number that can be trained on", v.Reward)
	}
	if v.Limit != "" {
		p.spans.markOnce(v.Limit)
	}
	p.out.Verdict = v
	return nil
}

// ask tells the wait for who judges from the judging, where the verifier does.
func (p *play) ask(ctx context.Context, c verifier.Case) (verifier.Verdict, error) {
	timed, ok := p.judge.(verifier.Timed)
	if !ok {
		p.spans.enter(Verifier, "")
		return p.judge.Verify(ctx, c)
	}
	p.spans.enter(VerifierWait, "")
	return timed.VerifyTimed(ctx, c, func() { p.spans.enter(Verifier, "") })
}

func (p *play) sum() error {
	// One that was ended before the world could say what it is worth is worth what it was given: nothing, mostly.
	if !p.rewarded && !p.out.Truncated && !p.out.TurnsSpent {
		return sandbox.Fail(sandbox.VerifierProtocol, "verify", "", "there is no verifier, and the world rewarded no step: what is the rollout worth?")
	}
	v := verifier.Verdict{Steps: p.steps}
	for _, step := range p.steps {
		v.Reward += step
	}
	if !(math.Abs(v.Reward) <= rewardMax) {
		return sandbox.Fail(sandbox.Protocol, "verify", "", "the world's rewards add up to %v, which cannot be trained on", v.Reward)
	}
	p.out.Verdict = v
	return nil
}

// failure says whose end an error is: the caller's, the episode's own time, or that of what failed.
func (p *play) failure(ctx, limited context.Context, err error) error {
	name := p.o.Rollout
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("episode %s: %w (%v)", name, ctx.Err(), err)
	case limited.Err() != nil:
		return fmt.Errorf("episode %s: %w", name, sandbox.Fail(sandbox.Timeout, "play", "", "not over within %v, in turn %d: %w (%v)", p.o.Timeout, p.out.Turns, context.DeadlineExceeded, err))
	}
	return fmt.Errorf("episode %s: %w", name, err)
}

// record writes down where the time went and how it ended.
func (p *play) record(err error) {
	r := Record{Rollout: p.o.Rollout, Task: p.task.ID, Turns: p.out.Turns}
	if !slices.ContainsFunc(p.tokens, func(t TurnTokens) bool { return t.Input == 0 }) {
		r.Tokens = p.tokens
	}
	if world, ok := p.world.(Boxed); ok {
		r.Box = string(world.Box().ID())
	}
	if world, ok := p.world.(Stated); ok { // it may have changed before it failed
		p.out.StateLow, p.out.StateHigh = world.State()
	}
	if p.out.StateLow >= 0 {
		low, high := p.out.StateLow, p.out.StateHigh
		r.StateLow, r.StateHigh = &low, &high
	}
	switch {
	case err == nil:
		reward := p.out.Verdict.Reward
		r.Reward, r.Steps, r.Metrics, r.Note = &reward, p.out.Verdict.Steps, p.out.Verdict.Metrics, p.out.Verdict.Note
	default:
		r.Failure, r.Note = sandbox.ClassOf(err), brief(err.Error())
		if r.Failure == "" {
			r.Failure = Unwanted
			if errors.Is(err, context.DeadlineExceeded) {
				r.Failure = sandbox.Timeout
			}
		}
		p.spans.fail(r.Failure)
	}
	r.Spans, p.out.Limits = p.spans.end()
	if len(p.out.Limits) > 0 {
		r.Limits = map[string]int{}
		for class, count := range p.out.Limits {
			r.Limits[string(class)] = count
		}
	}
	p.out.Record = r
}
