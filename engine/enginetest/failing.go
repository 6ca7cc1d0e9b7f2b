package enginetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
)

// errEnded ends an answer early.
var errEnded = errors.New("ended on purpose")

// failing is one answer on its way through a proxy.
type failing struct {
	proxy   *FaultProxy
	fault   Fault
	request *http.Request
	out     http.ResponseWriter
	passed  int
	// ended: the rest of the answer is left out on purpose.
	ended bool
}

// take passes one piece on, or fails.
func (s *failing) take(piece []byte) error {
	if s.passed++; s.passed <= s.fault.After {
		return s.send(piece)
	}
	switch s.fault.Kind {
	case Kill:
		panic(http.ErrAbortHandler)
	case Reset:
		s.ended = true
		reset(s.out)
		return errEnded
	case Truncate:
		_ = s.send(piece[:len(piece)/2])
		panic(http.ErrAbortHandler)
	case Short:
		return s.end(nil)
	case Hang:
		s.proxy.hang(s.request)
	case Drip:
		select {
		case <-s.proxy.wait(s.fault.Wait):
		case <-s.request.Context().Done():
		case <-s.proxy.closing:
		}
	case Error:
		return s.end([]byte("data: {\"error\":{\"message\":\"failed on purpose\",\"type\":\"InternalServerError\",\"code\":500}}\n\ndata: [DONE]\n\n"))
	case Garbage:
		piece = []byte("data: {\"choices\":[{\"text\": nonsense\n\n")
	case Unmarked:
		if data, ok := EventData(piece); ok && string(data) == "[DONE]" {
			return s.end(nil)
		}
	case Refinished:
		if finishes(piece) {
			piece = append(bytes.Clone(piece), piece...)
		}
	case Unfinished, WrongIDs, FewIDs, NoLogprobs, Missing, Positive:
		piece = corrupt(piece, s.fault.Kind)
	}
	return s.send(piece)
}

// send writes and flushes.
func (s *failing) send(data []byte) error {
	if _, err := s.out.Write(data); err != nil {
		return err
	}
	return http.NewResponseController(s.out).Flush()
}

// end ends the answer regularly, with data as its last.
func (s *failing) end(data []byte) error {
	s.ended = true
	return errors.Join(s.send(data), errEnded)
}

// finishes reports whether an event says why its response has ended.
func finishes(piece []byte) bool {
	found := false
	edit(piece, func(key string, value any) any {
		switch key {
		case "finish_reason", "stop_type":
			found = found || value != nil && value != "" && value != "none"
		case "stop":
			found = found || value == true
		}
		return value
	})
	return found
}

// edit rewrites every member of the objects in an event or a body; what is no JSON stays as it is.
func edit(piece []byte, change func(key string, value any) any) []byte {
	prefix, suffix := "", ""
	data := piece
	if event, ok := EventData(piece); ok {
		prefix, suffix, data = "data: ", "\n\n", event
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&tree) != nil {
		return piece
	}
	text, err := json.Marshal(walk("", tree, change))
	if err != nil {
		return piece
	}
	return []byte(prefix + string(text) + suffix)
}

// walk changes members from the inside out.
func walk(key string, value any, change func(string, any) any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = walk(name, member, change)
		}
	case []any:
		for i, member := range v {
			v[i] = walk("", member, change)
		}
	}
	if key == "" {
		return value
	}
	return change(key, value)
}

// corrupt makes an event lie.
func corrupt(piece []byte, kind FaultKind) []byte {
	return edit(piece, func(key string, value any) any {
		switch kind {
		case Unfinished:
			return unfinish(key, value)
		case WrongIDs, FewIDs:
			return wrongIDs(key, value, kind)
		}
		return wrongLogprobs(key, value, kind)
	})
}

// unfinish takes the reason of a finish away.
func unfinish(key string, value any) any {
	switch key {
	case "finish_reason":
		return nil
	case "stop_type":
		return "none"
	case "stop":
		if value == true {
			return false
		}
	}
	return value
}

// wrongIDs changes the lists of tokens under the names that servers have for them.
func wrongIDs(key string, value any, kind FaultKind) any {
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		return value
	}
	if key != "token_ids" && key != "output_ids" && key != "tokens" {
		return value
	}
	if _, isNumber := list[0].(json.Number); !isNumber {
		return value
	}
	if kind == FewIDs {
		return list[:len(list)-1]
	}
	for i := range list {
		list[i] = 1 << 30
	}
	return list
}

// wrongLogprobs changes log-probs in the forms that servers have for them.
func wrongLogprobs(key string, value any, kind FaultKind) any {
	instead := map[FaultKind]any{NoLogprobs: nil, Missing: -9999.0, Positive: 0.5}[kind]
	switch key {
	case "logprob":
		return instead
	case "prob": // a probability instead of its logarithm
		return map[FaultKind]any{NoLogprobs: nil, Missing: 0.0, Positive: 1.5}[kind]
	case "logprobs", "completion_probabilities":
		if kind == NoLogprobs {
			return nil
		}
	case "token_logprobs":
		if list, ok := value.([]any); ok {
			for i := range list {
				list[i] = instead
			}
		}
	case "output_token_logprobs": // [log-prob, id, text] a token
		if kind == NoLogprobs {
			return nil
		}
		list, _ := value.([]any)
		for _, entry := range list {
			if triple, ok := entry.([]any); ok && len(triple) > 0 {
				triple[0] = instead
			}
		}
	}
	return value
}
