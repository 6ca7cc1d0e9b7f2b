package cell

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// errUnscored marks the error of a rollout that the scorer would not score.
var errUnscored = errors.New("the rollout has no scores")

// score has a finished sample scored, and keeps what the scorer says as side channels of it. The rollout may be
// interrupted meanwhile, as while its environment is at work: nothing of it runs at an engine. An error is why the
// rollout has failed, but for one of the store: that ends the run, as it does with an engine's rows.
func (c *Cell) score(p *rollout, s *port.Sample) error {
	if err := checkSample(s, p.task.ID); err != nil || p.side.err != nil {
		return err
	}
	if len(s.Media) > 0 { // a teacher is handed tokens alone, and would score what it has not seen
		return fmt.Errorf("%w: %w: scoring.servers are handed no media, and the rollout has %d", port.ErrData, port.ErrMedia, len(s.Media))
	}
	scores, err := c.opt.Scorer.Score(p.ctx, s)
	if err == nil {
		err = checkScores(s, scores)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnscored, err)
	}
	err = c.opt.Space.Write(p.ctx, nil, func() error { return c.keepScores(p, s, scores) })
	if err != nil {
		p.side.err = err
	}
	return nil
}

// keepScores puts scores beside a sample's rows, all or none of them: rollouts that hold some room and wait for more
// could wait for each other.
func (c *Cell) keepScores(p *rollout, s *port.Sample, scores []port.Scores) error {
	kept := slices.Clone(s.Channels) // the environment may hold its own
	for i := range scores {
		number := p.side.blobs
		p.side.blobs++ // which is never used again
		if err := p.side.put(number, scores[i].Data); err != nil {
			err = fmt.Errorf("channel %s: %w", scores[i].Name, err)
			if NoSpace(err) {
				err = c.yieldRows(p, s, err)
			}
			return err
		}
		part := channel.Part{Rows: int32(len(scores[i].Data) / scores[i].RowBytes()), Blob: number}
		p.scores = append(p.scores, scores[i].Name)
		kept = append(kept, channel.Channel{Header: scores[i].Header, Sequence: scores[i].Sequence, Parts: []channel.Part{part}})
	}
	slices.SortStableFunc(kept, func(a, b channel.Channel) int { return int(a.Sequence - b.Sequence) })
	s.Channels = kept
	return nil
}

// yieldRows gives up what a rollout has in the store before its payload, as rows may be absent: all that wait for room could
// hold it between them. It returns why, with what goes wrong.
func (c *Cell) yieldRows(p *rollout, s *port.Sample, why error) error {
	if len(s.Channels) > 0 && p.side.refused != nil {
		p.side.refused(why)
	}
	s.Channels = nil
	return errors.Join(why, c.opt.Payloads.Discard(p.task.ID))
}

// checkScores refuses scores that are not of every sampled token of every sequence that is trained on.
func checkScores(s *port.Sample, scores []port.Scores) error {
	rows := make(map[string]int, 3) // of each channel
	for i := range scores {
		c := &scores[i]
		if err := c.Check(); err != nil {
			return err
		}
		if c.Sequence < 0 || int(c.Sequence) >= s.Sequences() || s.Untrained(int(c.Sequence)) || c.Ragged || c.Align != channel.Sampled {
			return fmt.Errorf("channel %s: the scorer says it of sequence %d of %d, aligned to %s: want one that is trained on, and sampled tokens", c.Name, c.Sequence, s.Sequences(), c.Align)
		}
		if slices.ContainsFunc(scores[:i], func(o port.Scores) bool { return o.Name == c.Name && (o.Sequence >= c.Sequence || !o.Same(c.Header)) }) ||
			slices.ContainsFunc(s.Channels, func(o channel.Channel) bool { return o.Name == c.Name }) {
			return fmt.Errorf("channel %s: the scorer says it twice of sequence %d, or with rows of two forms, or an engine has said it", c.Name, c.Sequence)
		}
		first, end := s.Sequence(int(c.Sequence))
		n := channel.Sampled.Rows(s.LossMask[first:end])
		if n == 0 || !c.Holds(n, c.Data) {
			return fmt.Errorf("channel %s: the scorer says %d bytes of sequence %d, which has %d sampled tokens in rows of %d bytes", c.Name, len(c.Data), c.Sequence, n, c.RowBytes())
		}
		rows[c.Name] += n
	}
	all := s.Trained().ResponseTokens()
	for name, n := range rows {
		if n != all {
			return fmt.Errorf("channel %s: the scorer says %d rows of %d sampled tokens", name, n, all)
		}
	}
	if len(scores) == 0 {
		return errors.New("the scorer says nothing")
	}
	return nil
}
