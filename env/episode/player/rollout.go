package player

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/internal/pause"
)

// failedMax and textMax bound, in bytes, why an attempt failed and what is kept of it to be read.
const (
	failedMax = 1 << 10
	textMax   = 64 << 10
)

// play plays one rollout from its claim to its end.
func (p *Players) play(ctx context.Context, claim protocol.Claim) {
	p.playing.Add(1)
	defer p.playing.Add(-1)
	playing, end := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { p.keep(playing, claim, end) })
	task, world, err := p.prepare(playing, claim)
	policy := &chatPolicy{gateway: p.opt.Gateway, rollout: claim.ID}
	var outcome episode.Outcome
	if err == nil {
		outcome, err = p.episode(playing, policy, task, world)
	} else {
		outcome.Record = episode.Record{Rollout: claim.ID}
	}
	if err != nil && playing.Err() != nil {
		err = context.Cause(playing)
	}
	end(nil)
	keeping.Wait() // a call to finish keeps the claim by itself
	if task != nil {
		outcome.Record.Task = task.ID
	}
	ended := p.finish(ctx, claim, task, outcome, err)
	if task != nil && ended.Failure != episode.Unwanted {
		p.opt.Ended(Attempt{Task: task, Record: ended, Evaluation: claim.Evaluation, Exact: outcome.Verdict.Exact, Version: policy.newest})
	}
	if world != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := world.Close(closing); err != nil {
			p.opt.Logf("players: %s: closing what it played in: %v", claim.ID, err)
		}
	}
}

// prepare finds the claim's task and makes its world.
func (p *Players) prepare(ctx context.Context, claim protocol.Claim) (task *taskset.Task, world episode.World, err error) {
	task, err = p.task(ctx, claim)
	if err != nil {
		return nil, nil, sandbox.Fail(sandbox.BadTask, "task", "", "%w", err)
	}
	if world, err = p.opt.World(ctx, claim, task); err != nil && sandbox.ClassOf(err) == "" {
		err = sandbox.Fail(sandbox.Refused, "world", "", "%w", err)
	}
	return task, world, err
}

// task finds the claim's task. It asks again while the choice of it cannot be written down, as on a full disk.
func (p *Players) task(ctx context.Context, claim protocol.Claim) (*taskset.Task, error) {
	for told := false; ; told = true {
		task, err := p.opt.Task(claim)
		if !errors.Is(err, taskset.ErrUnwritten) {
			return task, err
		}
		if !told {
			p.opt.Logf("players: %s waits: %v", claim.ID, err)
		}
		if pause.For(ctx, claimPause) != nil {
			return nil, err
		}
	}
}

// episode plays the chat, and takes for a failure what the run says that a limit is.
func (p *Players) episode(ctx context.Context, policy *chatPolicy, task *taskset.Task, world episode.World) (episode.Outcome, error) {
	earlier, err := p.earlier(policy.rollout)
	if err != nil {
		return episode.Outcome{Record: episode.Record{Rollout: policy.rollout}}, err
	}
	outcome, err := episode.Play(ctx, task, policy, world, p.opt.Verifier, episode.Options{
		Rollout: policy.rollout, TurnsMax: p.opt.TurnsMax, Timeout: p.opt.Timeout, Clock: p.opt.Clock, Earlier: earlier, Note: func(s episode.Step) {
			if note, err := json.Marshal(s); err == nil { // of a world's messages, which are JSON
				p.opt.Rollouts.Note(policy.rollout, note)
			}
		},
	})
	if err != nil {
		return outcome, err
	}
	for _, class := range sandbox.Classes {
		if p.opt.FailOn[class.Class] && (outcome.Limits[class.Class] > 0 || outcome.Verdict.Limit == class.Class) {
			outcome.Record.Reward, outcome.Record.Failure = nil, class.Class
			return outcome, sandbox.Fail(class.Class, "play", "", "its code met the limit, which environment.on_limit says is a failure")
		}
	}
	return outcome, nil
}

// earlier are the steps that players of a process before this one noted.
func (p *Players) earlier(rollout string) (steps []episode.Step, err error) {
	notes := p.opt.Rollouts.Notes(rollout)
	steps = make([]episode.Step, len(notes))
	for i, note := range notes {
		if err := json.Unmarshal(note, &steps[i]); err != nil {
			return nil, fmt.Errorf("%w: its notes cannot be read: %w", episode.ErrOtherwise, err)
		}
	}
	return steps, nil
}

// finish tells the control plane how it ended, and notes it down as it returns it.
func (p *Players) finish(ctx context.Context, claim protocol.Claim, task *taskset.Task, outcome episode.Outcome, err error) episode.Record {
	record := outcome.Record
	switch {
	case ctx.Err() != nil: // the process ends, and the next one may go on
		record.Reward, record.Failure, record.Note = nil, episode.Unwanted, "the control plane stops"
		return record
	case err == nil:
		err = p.send(ctx, claim, scored(task, outcome))
		if err != nil && protocol.RefusalOf(err).Code == protocol.CodeInvalid { // such as an episode in which the policy said nothing
			err = sandbox.Fail(sandbox.Protocol, "finish", "", "%w", err)
		} else if err != nil {
			err = over(protocol.RefusalOf(err))
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, errUnwanted):
		record.Reward, record.Failure, record.Note = nil, episode.Unwanted, brief(err)
	case errors.Is(err, episode.ErrOtherwise):
		record.Reward, record.Failure, record.Note = nil, episode.Unwanted, brief(err)
		p.opt.Logf("players: %s is played anew: %v", claim.ID, err)
		p.opt.Rollouts.Forsake(claim.ID, err)
	default:
		record.Reward, record.Failure, record.Note = nil, classOf(err), brief(err)
		p.opt.Logf("players: %s failed: %s", claim.ID, record.Failure)
		if again := p.send(ctx, claim, failed(record)); again != nil && ctx.Err() == nil {
			p.opt.Logf("players: %s: %v", claim.ID, again)
		}
	}
	p.opt.Record(record)
	return record
}

// classOf is the class of an error, which every failure has in the end.
func classOf(err error) sandbox.Class {
	if errors.Is(err, context.DeadlineExceeded) {
		return cmp.Or(sandbox.ClassOf(err), sandbox.Timeout)
	}
	return cmp.Or(sandbox.ClassOf(err), episode.WorldFailed)
}

// send finishes a claim. It tries again while the control plane says that it cannot now, for as long as
// the claim lasts.
func (p *Players) send(ctx context.Context, claim protocol.Claim, req protocol.FinishRequest) error {
	req.Worker = p.opt.Name
	lasting, cancel := context.WithTimeout(ctx, time.Duration(claim.DeadlineS*float64(time.Second)))
	defer cancel()
	for {
		_, err := p.opt.Rollouts.Finish(ctx, claim.ID, req)
		if err == nil {
			return nil
		}
		switch protocol.RefusalOf(err).Code {
		case protocol.CodeBusy, protocol.CodeUnavailable, protocol.CodeDiskFull:
		default:
			return err
		}
		if pause.For(lasting, claimPause) != nil {
			return err
		}
	}
}

// failed is the end of a rollout that has no reward.
func failed(record episode.Record) protocol.FinishRequest {
	reason := protocol.ReasonEnvironment
	switch record.Failure {
	case sandbox.Timeout, sandbox.VerifierTimeout, sandbox.StartTimeout:
		reason = protocol.ReasonTimeout
	case sandbox.BadTask:
		reason = protocol.ReasonData
	}
	return protocol.FinishRequest{Failed: string(record.Failure) + ": " + record.Note, Reason: reason, Class: string(record.Failure)}
}

// scored is the end of a rollout with its reward.
func scored(task *taskset.Task, outcome episode.Outcome) protocol.FinishRequest {
	began := min(len(task.Messages), len(outcome.Messages))
	return protocol.FinishRequest{
		Reward: new(float32(outcome.Verdict.Reward)), Exact: outcome.Verdict.Exact,
		PromptText: readable(outcome.Messages[:began]), ResponseText: readable(outcome.Messages[began:]), AnswerText: cut(string(task.Answer), textMax),
	}
}

// readable is a chat as text for people.
func readable(messages []json.RawMessage) string {
	var b strings.Builder
	for i, raw := range messages {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Calls   json.RawMessage `json:"tool_calls"`
		}
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		if len(messages) > 1 {
			b.WriteString(m.Role + ": ")
		}
		var text string
		if json.Unmarshal(m.Content, &text) != nil {
			text = string(m.Content)
		}
		b.WriteString(text)
		if len(m.Calls) > 0 && string(m.Calls) != "null" {
			b.Write(m.Calls)
		}
		if b.Len() > textMax {
			break
		}
	}
	return cut(b.String(), textMax)
}

// brief is an error in one line of bounded length.
func brief(err error) string {
	return cut(strings.Join(strings.Fields(err.Error()), " "), failedMax)
}

// cut shortens a text to whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
