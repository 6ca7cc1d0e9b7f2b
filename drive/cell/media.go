package cell

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// keptMedia knows under which numbers the media of groups lie in the store, so that each is put once for all rollouts
// and turns of its group. The zero value is ready.
type keptMedia struct {
	mu     sync.Mutex
	groups map[loop.GroupID]map[media.Hash]int32
}

// forget forgets a group.
func (k *keptMedia) forget(group loop.GroupID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, group)
}

// put makes a medium of a group durable, unless it is, and returns its number. A number is made of the hash, so that a
// process that goes on with the group finds what is there.
func (k *keptMedia) put(blobs port.Blobs, group loop.GroupID, m *media.Item) (int32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number, ok := k.groups[group][m.Hash]; ok {
		return number, nil
	}
	id := port.GroupMedia(group)
	number := int32(m.Hash[0])<<23 | int32(m.Hash[1])<<15 | int32(m.Hash[2])<<7 | int32(m.Hash[3])>>1
	there := make([]byte, len(m.Data))
	for {
		err := blobs.ReadBlob(id, number, 0, there)
		if err == nil && sha256.Sum256(there) == [sha256.Size]byte(m.Hash) {
			break
		}
		if err == nil || errors.Is(err, port.ErrBlobDamaged) || k.taken(group, number) { // the number is another's
			number = (number + 1) & (1<<31 - 1)
			continue
		}
		if !errors.Is(err, port.ErrNoBlob) {
			return 0, err
		}
		if err := blobs.PutBlob(id, number, m.Data); err != nil {
			return 0, err
		}
		break
	}
	if k.groups == nil {
		k.groups = map[loop.GroupID]map[media.Hash]int32{}
	}
	if k.groups[group] == nil {
		k.groups[group] = map[media.Hash]int32{}
	}
	k.groups[group][m.Hash] = number
	return number, nil
}

// taken reports whether a number is known to be another medium's; a shorter one reads as if it were not there.
func (k *keptMedia) taken(group loop.GroupID, number int32) bool {
	for _, known := range k.groups[group] {
		if known == number {
			return true
		}
	}
	return false
}

// putSample makes the media of a sample durable, and then its payload, which says where they lie. Media without room take
// that of the rollout's own rows. The reference is of a store that another process reads, and empty elsewhere.
func (c *Cell) putSample(p *rollout, s *port.Sample) (reference string, err error) {
	for i := range s.Media {
		m := &s.Media[i]
		if c.blobs == nil {
			return "", fmt.Errorf("%v has media, and the store keeps no blobs", s.ID)
		}
		if m.Data == nil {
			continue // an earlier try has put it
		}
		number, err := c.media.put(c.blobs, s.ID.Group, m)
		if err != nil {
			if err = fmt.Errorf("%s %v: %w", m.Modality, m.Hash, err); NoSpace(err) {
				err = c.yieldRows(p, s, err)
			}
			return "", err
		}
		m.Blob, m.Data = number, nil
	}
	if c.referring != nil {
		reference, err = c.referring.PutReferred(*s)
		switch {
		case NoSpace(err):
			p.leaveOut(s, err)
		case errors.Is(err, port.ErrBlobDamaged) || errors.Is(err, port.ErrNoBlob): // of rows, or else again
			p.leaveOut(s, err)
			reference, err = c.referring.PutReferred(*s)
		}
		return reference, err
	}
	return "", c.opt.Payloads.PutSample(*s)
}

// leaveOut leaves the rows of engines out of a sample, for whose payload there is no room, or which the cell's disk has lost. Scores
// stay.
func (p *rollout) leaveOut(s *port.Sample, why error) {
	scores := slices.Clone(s.Channels) // the environment may hold its own
	scores = slices.DeleteFunc(scores, func(c channel.Channel) bool { return !slices.Contains(p.scores, c.Name) })
	if len(scores) < len(s.Channels) && p.side.refused != nil {
		p.side.refused(why)
	}
	s.Channels = scores
}

// checkMedia refuses media whose placeholders are not among a sequence's tokens, or were sampled.
func checkMedia(s *port.Sample) error {
	if err := media.Check(s.Media, len(s.Tokens)); err != nil {
		return fmt.Errorf("cell: sample %v: %w", s.ID, err)
	}
	sequence := 0
	for i := range s.Media {
		m := &s.Media[i]
		for sequence < len(s.Breaks) && m.Offset >= s.Breaks[sequence] {
			sequence++
		}
		if _, end := s.Sequence(sequence); int(m.End()) > end {
			return fmt.Errorf("cell: sample %v has %s %d over the end of sequence %d", s.ID, m.Modality, i, sequence)
		}
		for at := m.Offset; at < m.End(); at++ {
			if s.LossMask[at] != 0 {
				return fmt.Errorf("cell: sample %v has %s %d at %d, where the policy sampled a token", s.ID, m.Modality, i, at)
			}
		}
		if m.Data == nil {
			return fmt.Errorf("cell: sample %v has %s %d without its bytes", s.ID, m.Modality, i)
		}
	}
	return nil
}
