package batch

import (
	"errors"
	"fmt"

	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// blob names one in the store.
type blob struct {
	id     port.RolloutID
	number int32
}

// lost reports whether an error says that a blob will never be read.
func lost(err error) bool {
	return errors.Is(err, port.ErrNoBlob) || errors.Is(err, port.ErrBlobDamaged)
}

// isLost reports whether a piece was found to be lost.
func (p *Batch) isLost(x *piece) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, is := p.lost[blob{x.id, x.Blob}]
	return is
}

// lose counts all rows of a piece's blob as absent from now on.
func (p *Batch) lose(channel string, x *piece, err error) {
	key := blob{x.id, x.Blob}
	p.mu.Lock()
	_, known := p.lost[key]
	p.lost[key] = struct{}{}
	p.mu.Unlock()
	if !known && p.tell != nil {
		p.tell(channel, p.rowsOf(key), fmt.Errorf("channel %s of rollout %s, blob %d: %w", channel, name(x.id), x.Blob, err))
	}
}

// rowsOf is how many rows the batch has in a blob.
func (p *Batch) rowsOf(key blob) (rows int) {
	for g := range p.groups {
		for i := range p.groups[g].Samples {
			s := &p.groups[g].Samples[i]
			for k := range s.Channels {
				for _, part := range s.Channels[k].Parts {
					if s.ID == key.id && part.Blob == key.number {
						rows += int(part.Rows)
					}
				}
			}
		}
	}
	return rows
}

// present is how many rows a rollout has of a channel, without those that are lost.
func (p *Batch) present(id port.RolloutID, c *channel.Channel) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lost) == 0 {
		return c.Present()
	}
	rows := 0
	for _, part := range c.Parts {
		if _, gone := p.lost[blob{id, part.Blob}]; !gone {
			rows += int(part.Rows)
		}
	}
	return rows
}
