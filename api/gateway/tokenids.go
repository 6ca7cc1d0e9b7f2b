package gateway

import (
	"encoding/json"
	"math"

	"github.com/headway-rl/headway/api/protocol"
)

// stopIDs are the token ids that end a response.
type stopIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (s *stopIDs) UnmarshalJSON(raw []byte) (err error) {
	if string(raw) == "null" {
		return nil
	}
	*s, err = readIDs(raw, "stop_token_ids")
	return err
}

// promptText is the prompt of a completion: a text or token ids, by themselves or as the one element
// of a list. It is empty where there is none.
type promptText struct {
	text   string
	tokens []int32
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *promptText) UnmarshalJSON(raw []byte) (err error) {
	switch {
	case string(raw) == "null":
		return nil
	case raw[0] == '"':
		if err = json.Unmarshal(raw, &p.text); err == nil && p.text == "" {
			err = emptyPrompt()
		}
		return err
	case raw[0] != '[':
		return invalid("prompt", "prompt is neither a text nor a list of token ids")
	}
	if first := raw[skipSpace(raw, 1)]; first == '"' || first == '[' {
		return p.only(raw)
	}
	if p.tokens, err = readIDs(raw, "prompt"); err == nil && len(p.tokens) == 0 {
		err = emptyPrompt()
	}
	return err
}

// only reads a list of one prompt.
func (p *promptText) only(raw []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	if len(list) > 1 {
		return invalid("prompt", "prompt is a list of %d: want one prompt a request", len(list))
	}
	if list[0][0] == '[' {
		if first := list[0][skipSpace(list[0], 1)]; first == '"' || first == '[' {
			return invalid("prompt", "prompt is a list in a list in a list: want a text or a list of token ids")
		}
	}
	return p.UnmarshalJSON(list[0])
}

func emptyPrompt() *protocol.Refusal {
	return invalid("prompt", "prompt is empty: a response needs at least one token before it")
}

// skipSpace is the place of the next byte from i on that is no space.
func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r') {
		i++
	}
	return i
}

// readIDs reads a list of token ids, which is JSON, in one pass. Where encoding/json takes a null
// for 0, it is refused: a rollout would be trained on tokens that nobody sent.
func readIDs(raw []byte, field string) ([]int32, error) {
	if raw[0] != '[' {
		return nil, invalid(field, "%s is no list: want a list of token ids", field)
	}
	ids := []int32{}
	for i := skipSpace(raw, 1); raw[i] != ']'; i = skipSpace(raw, i) {
		if raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
		begin, id := i, int64(0)
		for ; raw[i] >= '0' && raw[i] <= '9' && id <= math.MaxInt32; i++ {
			id = 10*id + int64(raw[i]-'0')
		}
		end := skipSpace(raw, i)
		if i == begin || id > math.MaxInt32 || raw[end] != ',' && raw[end] != ']' {
			return nil, invalid(field, "%s[%d] is no token id: want an integer from 0 to %d", field, len(ids), math.MaxInt32)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}
