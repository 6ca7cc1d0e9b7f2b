package calls

import (
	"bytes"
	"encoding/json"
)

// stepWhole waits for the end of a response that may be calls and nothing else. Once it cannot be, it is text.
func (s *Scanner) stepWhole(out *Out) bool {
	begins := byte('{')
	if s.d.body == asPython {
		begins = '['
	}
	rest := bytes.TrimLeft(s.in, " \t\r\n")
	if len(rest) == 0 || rest[0] == begins {
		return false
	}
	for _, word := range s.d.words[:1] {
		mark := s.d.put(word)
		if n := min(len(mark), len(rest)); bytes.Equal(mark[:n], rest[:n]) {
			return false
		}
	}
	s.state = inContent
	return true
}

// whole decides a response that may be calls.
func (s *Scanner) whole(stopped bool, out *Out) {
	text := bytes.TrimSpace(s.in)
	text, framed := bytes.CutPrefix(text, s.d.put(s.d.words[0]))
	var found []wholeCall
	status := OK
	if s.d.body == asPython {
		if end := s.d.put(s.d.words[1]); framed {
			text = bytes.TrimSuffix(bytes.TrimSpace(text), end)
		}
		found, status = pythonCalls(string(s.plain(bytes.TrimSpace(text))))
	} else {
		found, status = objectCalls(s.plain(text))
	}
	for _, c := range found {
		if _, ok := s.tools[c.name]; status == OK && !ok {
			status = UnknownTool // without a frame, what names no tool is an answer
		}
	}
	if status == OK && !stopped {
		status = Unclosed
	}
	attempt := framed || len(found) > 0
	s.state, s.raw = inContent, s.in
	s.in = nil
	switch {
	case status == OK && len(found) > 0:
		s.raw = nil
		for _, c := range found {
			s.name = c.name
			s.say(out)
			to := out.arguments(s.index)
			*to = append(*to, c.arguments...)
			s.complete(out)
		}
	case attempt:
		s.fail(status, out)
	default:
		s.content(s.raw, out)
		s.raw = nil
	}
}

// wholeCall is a call of a response without a frame.
type wholeCall struct {
	name      string
	arguments []byte
}

// objectCalls reads JSON objects one after the other, parted by spaces or semicolons. It returns what it
// could read: an object that has no name is no attempt at a call.
func objectCalls(rest []byte) (found []wholeCall, status Status) {
	rest = bytes.TrimSpace(rest)
	for len(rest) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(rest))
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			if bytes.Contains(rest, []byte(`"name"`)) {
				found = append(found, wholeCall{})
			}
			return found, InvalidJSON
		}
		call, status := objectCall(raw)
		if status != OK {
			return found, status
		}
		found = append(found, call)
		rest = bytes.TrimLeft(rest[decoder.InputOffset():], "; \t\r\n")
	}
	if len(found) == 0 {
		return nil, MissingName
	}
	return found, OK
}

// objectCall reads one call, {"name": …, "parameters": {…}}.
func objectCall(text []byte) (wholeCall, Status) {
	var call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(text, &call) != nil || call.Name == "" {
		return wholeCall{}, MissingName
	}
	raw := call.Arguments
	if len(raw) == 0 || string(raw) == "null" {
		raw = call.Parameters
	}
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	if raw[0] == '"' {
		raw = json.RawMessage(unquote(raw))
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return wholeCall{}, Malformed
	}
	return wholeCall{call.Name, raw}, OK
}
