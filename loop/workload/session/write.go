package session

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Writer writes sessions in a format that others read, one after another.
//
// A sub-agent is written as a session of its own. Blocks are lost in Rollouts and
// Player, and sessions in Mooncake.
type Writer struct {
	out     *bufio.Writer
	write   func(s *Session) error
	block   int
	grouped bool
	next    uint64           // the next identifier of a block that has none, or the next group
	prompts map[int][]uint64 // blocks of a group's prompt
	// Empty counts calls that generate nothing, which Rollouts and Player write as one token. Shrunk counts calls
	// whose input does not continue the call before, which Rollouts writes as if it did.
	Empty, Shrunk int
}

// NewWriter returns a writer of sessions of a record in blocks of so many tokens (0 for none), grouped as
// [Record.Grouped] says. ClaudeCode is read and not written.
func NewWriter(out io.Writer, to Format, blockTokens int, grouped bool) (*Writer, error) {
	w := &Writer{out: bufio.NewWriterSize(out, 1<<16), block: blockTokens, grouped: grouped, prompts: map[int][]uint64{}}
	switch to {
	case Mooncake:
		if blockTokens > 0 && mooncakeBlock%blockTokens != 0 {
			return nil, fmt.Errorf("blocks of %d tokens do not fill Mooncake's of %d: want a length that divides it", blockTokens, mooncakeBlock)
		}
		w.next = 1 << 48 // no record counts its blocks that far
		w.write = w.mooncake
	case Rollouts:
		w.write = w.rollout
	case Player:
		w.write = w.conversation
	default:
		return nil, fmt.Errorf("format %q is not written: want %s, %s or %s", to, Mooncake, Rollouts, Player)
	}
	return w, nil
}

// Write writes a session, and then its sub-agents.
func (w *Writer) Write(s Session) error {
	if len(s.Calls) > 0 {
		if err := w.write(&s); err != nil {
			return err
		}
	}
	for _, agent := range s.Agents {
		agent.StartS += s.StartS
		agent.Group, agent.Sample = -1, 0 // it shares its prompt with nobody
		if err := w.Write(agent); err != nil {
			return err
		}
	}
	return nil
}

// Close writes what is left. It does not close the file.
func (w *Writer) Close() error { return w.out.Flush() }

// line writes a JSON object.
func (w *Writer) line(object any) error {
	text, err := json.Marshal(object)
	if err == nil {
		_, err = w.out.Write(append(text, '\n'))
	}
	return err
}

// mooncake writes a request for every call, at the time at which it was recorded, or would have come if no
// call took any time.
func (w *Writer) mooncake(s *Session) error {
	at := s.StartS
	var own []uint64 // without blocks of the record's own
	for i := range s.Calls {
		c := &s.Calls[i]
		at += c.GapS
		ids := own
		if c.Blocks == nil {
			own = w.extend(own, s, i)
			ids = own[:c.InputTokens/mooncakeBlock]
		} else {
			ids = coarse(c.Blocks, mooncakeBlock/w.block)
			ids = ids[:min(len(ids), c.InputTokens/mooncakeBlock)]
		}
		if c.InputTokens%mooncakeBlock > 0 { // the last block, which is not whole and nobody's else
			ids = append(ids[:len(ids):len(ids)], w.newID())
		}
		if ids == nil {
			ids = []uint64{}
		}
		err := w.line(struct {
			Timestamp int64    `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}{int64(math.Round(at * 1000)), c.InputTokens, c.OutputTokens, ids})
		if err != nil {
			return err
		}
		at += c.TookS
	}
	return nil
}

func (w *Writer) newID() uint64 {
	w.next++
	return w.next - 1
}

// coarse returns the identifier of every so manyth block: it names all tokens before its end.
func coarse(blocks []uint64, every int) []uint64 {
	if every == 1 {
		return blocks
	}
	ids := make([]uint64, 0, len(blocks)/every+1)
	for i := every - 1; i < len(blocks); i += every {
		ids = append(ids, blocks[i])
	}
	return ids
}

// extend names the whole blocks of a session's context up to a call's. Samples of a group begin with the same ones.
func (w *Writer) extend(own []uint64, s *Session, call int) []uint64 {
	need := s.Calls[call].InputTokens / mooncakeBlock
	if call == 0 && w.grouped && s.Group >= 0 {
		prompt := w.prompts[s.Group]
		for len(prompt) < need {
			prompt = append(prompt, w.newID())
		}
		w.prompts[s.Group] = prompt
		return append(own, prompt[:need]...)
	}
	for len(own) < need {
		own = append(own, w.newID())
	}
	return own
}

// rollout writes a line of a rollout trace. A session without a group is one of its own.
func (w *Writer) rollout(s *Session) error {
	line := struct {
		Group   int       `json:"group"`
		Stream  int       `json:"stream"`
		Prompt  int       `json:"prompt_len"`
		Outputs []int     `json:"out_lens"`
		Seen    []int     `json:"obs_lens"`
		Tools   []float64 `json:"tool_times,omitempty"`
	}{Group: s.Group, Stream: s.Sample, Prompt: s.Calls[0].InputTokens, Seen: []int{}}
	if !w.grouped {
		line.Group, line.Stream = int(w.next), 0
		w.next++
	}
	waits := false
	for i := range s.Calls {
		c := &s.Calls[i]
		line.Outputs = append(line.Outputs, w.atLeastOne(c.OutputTokens))
		if i == 0 {
			continue
		}
		before := &s.Calls[i-1]
		seen := c.InputTokens - before.InputTokens - before.OutputTokens
		if seen < 0 || c.kept(before, w.block) < before.InputTokens {
			w.Shrunk++
		}
		line.Seen = append(line.Seen, max(seen, 0))
		line.Tools = append(line.Tools, c.GapS)
		waits = waits || c.GapS > 0
	}
	if !waits {
		line.Tools = nil
	}
	return w.line(line)
}

// atLeastOne is the output of a call in a format for servers, which refuse to generate nothing.
func (w *Writer) atLeastOne(tokens int) int {
	if tokens == 0 {
		w.Empty++
	}
	return max(tokens, 1)
}

// conversation writes a line of trace_player.
func (w *Writer) conversation(s *Session) error {
	type turn struct {
		Input  int     `json:"input_tokens"`
		Output int     `json:"output_tokens"`
		Gap    float64 `json:"pre_gap_s"`
	}
	line := struct {
		ID    string `json:"conv_id"`
		Turns []turn `json:"turns"`
	}{ID: s.ID}
	for _, c := range s.Calls {
		line.Turns = append(line.Turns, turn{c.InputTokens, w.atLeastOne(c.OutputTokens), c.GapS})
	}
	return w.line(line)
}
