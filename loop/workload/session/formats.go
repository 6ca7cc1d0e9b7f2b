package session

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// mooncakeBlock is how many tokens a block of Mooncake's traces holds.
const mooncakeBlock = 512

// mooncake reads requests; each is a session of one call.
type mooncake struct{ requests int }

func (m *mooncake) parse(text []byte) (Session, error) {
	var request struct {
		Timestamp *float64 `json:"timestamp"`
		Input     *tokens  `json:"input_length"`
		Output    *tokens  `json:"output_length"`
		Hashes    numbers  `json:"hash_ids"`
	}
	if err := decode(text, &request); err != nil {
		return Session{}, err
	}
	start, err := seconds(request.Timestamp, "timestamp", 1000, true)
	if err != nil {
		return Session{}, err
	}
	call, err := oneCall(request.Input, request.Output, "input_length", "output_length", 1)
	if err != nil {
		return Session{}, err
	}
	if call.Blocks, err = wholeBlocks(request.Hashes, call.InputTokens, mooncakeBlock, "hash_ids"); err != nil {
		return Session{}, err
	}
	s := Session{ID: strconv.Itoa(m.requests), StartS: start, Calls: []Call{call}}
	m.requests++
	return s, nil
}

// oneCall checks the lengths of a call.
func oneCall(input, output *tokens, inputField, outputField string, least int) (c Call, err error) {
	if c.InputTokens, err = input.between(inputField, least); err != nil {
		return c, err
	}
	c.OutputTokens, err = output.between(outputField, 0)
	return c, err
}

// wholeBlocks returns the identifiers of an input's whole blocks. Records name the last one, which is mostly not
// whole, as well, or leave it out.
func wholeBlocks(ids numbers, input, block int, field string) ([]uint64, error) {
	whole, all := input/block, (input+block-1)/block
	if len(ids) < whole || len(ids) > all {
		return nil, &fault{field, fmt.Sprintf("a list of %d", len(ids)), fmt.Sprintf("%d for %d tokens in blocks of %d", all, input, block)}
	}
	return ids[:whole:whole], nil
}

// parseRollout reads a line of a rollout trace. An observation after the last turn is read by no call, and left out.
func parseRollout(text []byte) (Session, error) {
	var rollout struct {
		Group   *tokens       `json:"group"`
		Stream  *tokens       `json:"stream"`
		Prompt  *tokens       `json:"prompt_len"`
		Outputs numbers       `json:"out_lens"`
		Seen    numbers       `json:"obs_lens"`
		Tools   []json.Number `json:"tool_times"`
	}
	if err := decode(text, &rollout); err != nil {
		return Session{}, err
	}
	turns := len(rollout.Outputs)
	var s Session
	var err error
	if s.Group, err = rollout.Group.between("group", 0); err != nil {
		return s, err
	}
	if s.Sample, err = rollout.Stream.between("stream", 0); err != nil {
		return s, err
	}
	input, err := rollout.Prompt.between("prompt_len", 1)
	if err != nil {
		return s, err
	}
	if turns == 0 {
		return s, &fault{"out_lens", "empty", "the tokens of at least one turn"}
	}
	if n := len(rollout.Seen); n != turns && n != turns-1 {
		return s, &fault{"obs_lens", fmt.Sprintf("a list of %d", n), fmt.Sprintf("%d, one after each of %d turns (that after the last may be left out)", turns, turns)}
	}
	if n := len(rollout.Tools); n > turns {
		return s, &fault{"tool_times", fmt.Sprintf("a list of %d", n), fmt.Sprintf("at most %d, one after each turn", turns)}
	}
	s.ID = fmt.Sprintf("%d/%d", s.Group, s.Sample)
	s.Calls = make([]Call, turns)
	for i := range s.Calls {
		c := &s.Calls[i]
		c.InputTokens = input
		if c.OutputTokens, err = rollout.Outputs.tokensAt("out_lens", i, 1); err != nil {
			return s, err
		}
		if input += c.OutputTokens; i < len(rollout.Seen) {
			seen, err := rollout.Seen.tokensAt("obs_lens", i, 0)
			if err != nil {
				return s, err
			}
			input += seen
		}
		if input > MaxTokens {
			return s, &fault{"out_lens", fmt.Sprintf("%d tokens with prompt and observations after turn %d", input, i), wantTokens(1)}
		}
		if i > 0 && i <= len(rollout.Tools) {
			field, text := fmt.Sprintf("tool_times[%d]", i-1), rollout.Tools[i-1].String()
			gap, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return s, &fault{field, strconv.Quote(text), wantSeconds}
			}
			if c.GapS, err = seconds(&gap, field, 1, true); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// parseConversation reads a line of trace_player.
func parseConversation(text []byte) (Session, error) {
	var conversation struct {
		ID    json.RawMessage `json:"conv_id"`
		Turns []struct {
			Input  *tokens  `json:"input_tokens"`
			Output *tokens  `json:"output_tokens"`
			Gap    *float64 `json:"pre_gap_s"`
		} `json:"turns"`
	}
	if err := decode(text, &conversation); err != nil {
		return Session{}, err
	}
	if len(conversation.Turns) == 0 {
		return Session{}, &fault{"turns", "empty", "at least one turn"}
	}
	s := Session{ID: strings.Trim(string(conversation.ID), `"`), Calls: make([]Call, len(conversation.Turns))}
	for i, turn := range conversation.Turns {
		in := func(field string) string { return fmt.Sprintf("turns[%d].%s", i, field) }
		c, err := oneCall(turn.Input, turn.Output, in("input_tokens"), in("output_tokens"), 1)
		if err != nil {
			return s, err
		}
		if c.GapS, err = seconds(turn.Gap, in("pre_gap_s"), 1, false); err != nil {
			return s, err
		}
		if i == 0 { // a gap before the first call is no gap between two
			c.GapS = 0
		}
		s.Calls[i] = c
	}
	return s, nil
}
