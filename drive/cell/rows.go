package cell

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// blobsMost bounds the blobs of an attempt, so that a word has room for where all of them are.
const blobsMost = 2048

// sideRows gathers the side channels of one rollout, turn by turn. Their bytes go to the store as they come. It belongs
// to the goroutine that plays, and to the engine while that generates.
type sideRows struct {
	// put keeps a blob of the attempt; nil where the store keeps none.
	put func(number int32, data []byte) error
	// blobs is how many the attempt has put.
	blobs int32
	// before are blobs that a process before this one has put, of numbers below first.
	before map[int32]bool
	first  int32
	// prompt and known are those of the present turn, channels what it has brought.
	prompt, known int
	channels      []channel.Channel
	// refused, if not nil, is called with why rows are left out. They are absent then.
	refused func(error)
	// err is why the store keeps no blobs any more; lack of room is no such reason.
	err error
}

// goesOn goes on behind the blobs that a process before this one has put: there are those of numbers, and turns name some below
// named.
func (s *sideRows) goesOn(numbers []int32, named int32) {
	s.before, s.blobs = map[int32]bool{}, named
	for _, number := range numbers {
		s.before[number] = true
		s.blobs = max(s.blobs, number+1)
	}
	s.first = s.blobs
}

// lacks leaves out the rows of turns of a process before this one that are not there any more, as on another disk.
func (s *sideRows) lacks(sample *port.Sample) {
	if s.before == nil || len(sample.Channels) == 0 {
		return
	}
	kept, lost := make([]channel.Channel, 0, len(sample.Channels)), 0
	for _, c := range sample.Channels {
		parts := slices.DeleteFunc(slices.Clone(c.Parts), func(p channel.Part) bool { return p.Blob < s.first && !s.before[p.Blob] })
		lost += len(c.Parts) - len(parts)
		if c.Parts = parts; len(parts) > 0 {
			kept = append(kept, c)
		}
	}
	if sample.Channels = kept; lost > 0 && s.refused != nil {
		s.refused(errors.New("turns were kept, and their rows lay on a disk that this process does not have"))
	}
}

// begin makes ready for a turn after so many tokens, of which rows of passes are known before a row.
func (s *sideRows) begin(prompt, known int) { s.prompt, s.known, s.channels = prompt, known, nil }

// ask has an engine's call bring rows.
func (s *sideRows) ask(r *port.GenerateRequest) {
	if s.put == nil {
		return
	}
	r.Keep, r.Known = s.keep, s.known
	if len(s.channels) == 0 && s.known < s.prompt-1 {
		return // a row of the prompt is the first that lacks
	}
	mask, said := s.mask(len(r.Prefix.Tokens)), false
	r.Known = len(mask) - 1
	for i := range s.channels {
		if c := &s.channels[i]; c.Align == channel.Passes {
			r.Known, said = min(r.Known, c.Wanted(s.known, mask)), true
		}
	}
	if !said {
		r.Known = (&channel.Channel{}).Wanted(s.known, mask)
	}
}

// keep records what a call has said of a channel.
func (s *sideRows) keep(rows port.Rows) {
	if err := s.record(rows); err != nil && s.refused != nil {
		s.refused(err)
	}
}

func (s *sideRows) record(rows port.Rows) error {
	if err := rows.Check(); err != nil {
		return err
	}
	if rows.Count < 1 || rows.Start < 0 || !rows.Holds(rows.Count, rows.Data) {
		return fmt.Errorf("channel %s: an engine hands over %d rows from %d on in %d bytes, which are others", rows.Name, rows.Count, rows.Start, len(rows.Data))
	}
	at := slices.IndexFunc(s.channels, func(c channel.Channel) bool { return c.Name == rows.Name })
	if at < 0 {
		at = len(s.channels)
		s.channels = append(s.channels, channel.Channel{Header: rows.Header})
	}
	c := &s.channels[at]
	if !c.Same(rows.Header) {
		return fmt.Errorf("channel %s has rows of %s %v, and another engine says some of %s %v: have all engines serve the same model", rows.Name, c.DType, c.Row, rows.DType, rows.Row)
	}
	if s.err != nil {
		return s.err
	}
	if s.blobs >= blobsMost {
		return fmt.Errorf("channel %s: the rollout has rows of %d answers, and more are not kept", rows.Name, s.blobs)
	}
	number := s.blobs
	if err := s.put(number, rows.Data); err != nil {
		err = fmt.Errorf("channel %s: %w", rows.Name, err)
		if !NoSpace(err) { // else the rollout goes on without: all that wait for room could hold it between them
			s.err = err
		}
		return err
	}
	s.blobs++
	// How many tokens the turn has in the end is not known yet: finish cuts what is beyond them.
	p := channel.Part{Start: int32(rows.Start), Rows: int32(rows.Count), Blob: number}
	if c.Align != channel.Passes {
		return c.Add(p, 0, slices.Repeat([]uint8{1}, int(p.End())))
	}
	return c.Add(p, rows.First, s.mask(max(int(p.End())+1-s.prompt, 0)))
}

// mask is that of the turn with so many tokens in its response. The tokens of its prompt count as not sampled: whose
// they are only the environment knows.
func (s *sideRows) mask(response int) []uint8 {
	return append(make([]uint8, s.prompt, s.prompt+response), slices.Repeat([]uint8{1}, response)...)
}

// settle cuts what has come for tokens that are not the response's.
func (s *sideRows) settle(response int) {
	for i := range s.channels {
		c := &s.channels[i]
		if c.Align == channel.Passes {
			c.Truncate(s.mask(response))
		} else {
			c.Truncate(slices.Repeat([]uint8{1}, response))
		}
	}
}
