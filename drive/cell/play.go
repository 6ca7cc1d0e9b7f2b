package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// play plays one rollout attempt, makes its payload durable and says how it ended.
// The attempt's context lives on until that is in the log.
func (c *Cell) play(p *rollout) {
	began := c.opt.Clock()
	s, err := c.opt.Environment.Play(p.ctx, p.task, p)
	environmentNS := max(c.opt.Clock()-began-p.sampleNS, 0)
	p.side.lacks(&s)
	if c.opt.Scorer != nil && err == nil && !s.Pruned {
		err = c.score(p, &s)
	}
	if !p.end() {
		p.cancel()
		if c.acks != nil && c.ctx.Err() == nil {
			c.acks.Logged(p.task.ID, false)
		}
		return
	}
	s.GenerateNS, s.EnvironmentNS = p.generateNS, environmentNS
	c.conclude(p, &s, err)
}

// conclude makes the payload of an attempt that has ended durable and says how it ended. Nobody else changes the rollout.
// It is apart from play, whose goroutine needs a larger stack if it has these variables while it plays.
func (c *Cell) conclude(p *rollout, s *port.Sample, err error) {
	ev := Event{Event: p.event(loop.RolloutScored)}
	post := func() {
		c.keepEnded(p)
		p.out.sayInTurn(p.ctx, &ev)
	}
	if p.ctx.Err() != nil {
		ev.Kind = loop.RolloutAborted
		post()
		return
	}
	if err == nil && s.Pruned {
		ev.Mark = loop.MarkPruned
		ev.GenerateNS = p.generateNS
		post()
		return
	}
	if err == nil {
		err = checkSample(s, p.task.ID)
	}
	if err != nil {
		ev.Kind, ev.Reason, ev.Error = loop.RolloutFailed, p.failure(err), err.Error()
		post()
		return
	}
	if err := p.side.err; err != nil {
		ev.Fatal = c.broken(fmt.Errorf("cell: the side channels of %v cannot be kept: %w", p.task.ID, err))
		post()
		return
	}
	place(s, p.resumes, p.told)
	if err := c.opt.Space.Write(p.ctx, nil, func() (err error) { ev.Payload, err = c.putSample(p, s); return err }); err != nil {
		if NoSpace(err) { // it was given up while it waited for room
			ev.Kind = loop.RolloutAborted
		} else {
			ev.Fatal = c.broken(fmt.Errorf("cell: the payload of %v cannot be stored: %w", p.task.ID, err))
		}
		post()
		return
	}
	p.stored = true
	trained := s.Trained() // figures are of those alone
	ev.Tokens, ev.Reward, ev.Time = int32(trained.ResponseTokens()), s.Reward, c.opt.Clock()
	if s.Exact {
		ev.Mark = loop.MarkSolved
	}
	ev.Facts = measure(trained)
	if by := ev.Facts.ByVersion; len(by) > 0 { // older than was told: sampled elsewhere or before a restart, or named by the server since
		oldest := slices.MinFunc(by, func(a, b loop.VersionTokens) int { return cmp.Compare(a.Version, b.Version) }).Version
		if p.oldestTold == loop.NoVersion || oldest < p.oldestTold {
			p.sayFirst(p.slot, oldest)
		}
	}
	post()
}

// keepEnded keeps an attempt whose end is posted until that is in the log.
func (c *Cell) keepEnded(p *rollout) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[p.task.ID] = p
}

// takeEnded returns an attempt whose end is in the log now, nil for one that is not known here.
func (c *Cell) takeEnded(id port.RolloutID) *rollout {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.ended[id]
	delete(c.ended, id)
	return p
}

// broken says that the store takes no payloads any more. It returns true.
func (c *Cell) broken(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	return true
}

// failure says who is to blame for a rollout that ended with an error.
func (p *rollout) failure(err error) loop.Reason {
	switch {
	case errors.Is(err, port.ErrData):
		return loop.ReasonData
	case errors.Is(err, port.ErrUnkept):
		return loop.ReasonRestart
	case errors.Is(err, errUnscored):
		return loop.ReasonScorer
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(p.generateErr, context.DeadlineExceeded):
		return loop.ReasonTimeout
	case p.generateErr != nil:
		return loop.ReasonEngine
	}
	return loop.ReasonEnvironment
}

// measure says of a sample what the loop does not see.
func measure(s *port.Sample) Facts {
	m := Facts{GenerateNS: s.GenerateNS, EnvironmentNS: s.EnvironmentNS, Spans: versionRuns(s), Resumed: s.Resumed(), StateLag: int64(s.StateLag())}
	for i, v := range s.Versions {
		if s.LossMask[i] != 1 {
			continue
		}
		m.VersionTokens += int64(v)
		if last := len(m.ByVersion) - 1; last >= 0 && m.ByVersion[last].Version == v {
			m.ByVersion[last].Tokens++
		} else {
			m.ByVersion = append(m.ByVersion, loop.VersionTokens{Version: v, Tokens: 1})
		}
	}
	return m
}
