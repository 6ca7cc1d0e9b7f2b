package vllm

import (
	"bytes"
	"strconv"
)

// scan reads an event of the common shapes; false leaves it to parse.
func (e *event) scan(data []byte) bool {
	e.reset()
	s := scanner{data: data}
	seen := false
	ok := s.object(func(key []byte) bool {
		switch string(key) {
		case "choices":
			return once(&seen) && e.scanChoices(&s)
		case "error":
			return false
		}
		return s.skip(0)
	})
	return ok && s.end()
}

// once reports whether a key is there for the first time.
func once(seen *bool) bool {
	first := !*seen
	*seen = true
	return first
}

// object calls field for every key of an object, with the scanner before its value.
func (s *scanner) object(field func(key []byte) bool) bool {
	if !s.take('{') {
		return false
	}
	for first := true; ; {
		more, ok := s.next(&first, '}')
		if !ok || !more {
			return ok
		}
		key, ok := s.key()
		if !ok || !field(key) {
			return false
		}
	}
}

// list calls entry for every value of a list, with the scanner before it; null is an empty one.
func (s *scanner) list(entry func() bool) bool {
	if s.null() {
		return true
	}
	if !s.take('[') {
		return false
	}
	for first := true; ; {
		more, ok := s.next(&first, ']')
		if !ok || !more {
			return ok
		}
		if !entry() {
			return false
		}
	}
}

// scanChoices reads a list of at most one response.
func (e *event) scanChoices(s *scanner) bool {
	seen := false
	return s.list(func() bool { return once(&seen) && e.scanChoice(s) })
}

// Fields of a choice, as bits of those that were seen.
const (
	fieldTokens = 1 << iota
	fieldText
	fieldFinish
	fieldSpans
	fieldLogprobs
)

func (e *event) scanChoice(s *scanner) bool {
	seen := 0
	return s.object(func(key []byte) bool {
		field, ok := 0, true
		switch string(key) {
		case "token_ids":
			field, ok = fieldTokens, s.list(func() bool { return s.appendInteger(&e.tokens) })
		case "text":
			field, ok = fieldText, s.appendText(&e.text)
		case "finish_reason":
			field, ok = fieldFinish, s.appendText(&e.finish)
		case "weight_versions":
			field, ok = fieldSpans, s.null() // the last event alone has them
		case "logprobs":
			field, ok = fieldLogprobs, e.scanLogprobs(s)
		default:
			return s.skip(0)
		}
		again := seen&field != 0
		seen |= field
		return ok && !again
	})
}

// appendText reads a string or null.
func (s *scanner) appendText(dst *[]byte) bool {
	if s.null() {
		return true
	}
	text, ok := s.text(*dst)
	*dst = text
	return ok
}

func (s *scanner) appendInteger(dst *[]int32) bool {
	n, ok := s.integer()
	*dst = append(*dst, n)
	return ok
}

// appendLogprob reads a number, or null for one that is missing.
func (s *scanner) appendLogprob(dst *[]float32) bool {
	x, ok := float32(missing), true
	if !s.null() {
		x, ok = s.float()
	}
	*dst = append(*dst, x)
	return ok
}

// Fields of log-probs, as bits of those that were seen. The first is the newer road's, the others
// are the older's.
const (
	fieldContent = 1 << iota
	fieldTokenLogprobs
	fieldNames
)

// scanLogprobs reads the log-probs of either road.
func (e *event) scanLogprobs(s *scanner) bool {
	if s.null() {
		return true
	}
	seen := 0
	ok := s.object(func(key []byte) bool {
		field, ok := 0, true
		switch string(key) {
		case "content":
			field, ok = fieldContent, s.list(func() bool { return e.scanEntry(s) })
		case "token_logprobs":
			field, ok = fieldTokenLogprobs, s.list(func() bool { return s.appendLogprob(&e.logprobs) })
		case "tokens":
			field, ok = fieldNames, s.list(func() bool { return e.scanName(s) })
		default:
			return s.skip(0)
		}
		again := seen&field != 0
		seen |= field
		return ok && !again
	})
	return ok && (seen&fieldContent == 0 || seen == fieldContent)
}

// scanEntry reads the log-prob of one token and its id.
func (e *event) scanEntry(s *scanner) bool {
	logprobs, names := len(e.logprobs), len(e.named)
	seen := false
	ok := s.object(func(key []byte) bool {
		switch string(key) {
		case "logprob":
			return s.appendLogprob(&e.logprobs)
		case "token_id":
			return !s.null() && s.appendInteger(&e.named)
		case "token":
			return once(&seen) && e.scanName(s)
		}
		return s.skip(0)
	})
	return ok && len(e.logprobs) == logprobs+1 && len(e.named) <= names+1
}

// scanName reads a token's text, which may stand for its id.
func (e *event) scanName(s *scanner) bool {
	raw, escapes, ok := s.raw()
	if !ok || escapes && !plainEscapes(raw) {
		return false
	}
	digits, named := bytes.CutPrefix(raw, []byte(tokenPrefix))
	if !named {
		return true
	}
	if id, err := strconv.ParseInt(string(digits), 10, 32); err == nil {
		e.named = append(e.named, int32(id))
	}
	return !escapes
}
