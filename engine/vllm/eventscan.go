package vllm

import (
	"bytes"
	"strconv"

	"github.com/headway-rl/headway/engine/upstream"
)

// scan reads an event of the common shapes; false leaves it to parse.
func (e *event) scan(data []byte) bool {
	e.reset()
	s := scanner{upstream.Scan(data)}
	seen := false
	ok := s.Object(func(key []byte) bool {
		switch string(key) {
		case "choices":
			return once(&seen) && e.scanChoices(&s)
		case "error":
			return false
		}
		return s.Value()
	})
	return ok && s.End()
}

// once reports whether a key is there for the first time.
func once(seen *bool) bool {
	first := !*seen
	*seen = true
	return first
}

// scanner reads an event as upstream's does, and takes null for an empty list.
type scanner struct{ upstream.Scanner }

func (s *scanner) list(entry func() bool) bool { return s.Null() || s.List(entry) }

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
	fieldMasks
)

func (e *event) scanChoice(s *scanner) bool {
	seen := 0
	return s.Object(func(key []byte) bool {
		field, ok := 0, true
		switch string(key) {
		case "token_ids":
			field, ok = fieldTokens, s.list(func() bool { return s.appendInteger(&e.tokens) })
		case "text":
			field, ok = fieldText, s.appendText(&e.text)
		case "finish_reason":
			field, ok = fieldFinish, s.appendText(&e.finish)
		case "weight_versions":
			field, ok = fieldSpans, s.Null() // the last event alone has them
		case "logprobs":
			field, ok = fieldLogprobs, e.scanLogprobs(s)
		case "sampling_mask":
			field, ok = fieldMasks, s.list(func() bool { return e.scanMask(s) })
		default:
			return s.Value()
		}
		again := seen&field != 0
		seen |= field
		return ok && !again
	})
}

// scanMask reads the mask of one token.
func (e *event) scanMask(s *scanner) bool {
	before := len(e.ids)
	ok := s.List(func() bool { return s.appendInteger(&e.ids) })
	e.lengths = append(e.lengths, int32(len(e.ids)-before))
	return ok
}

// appendText reads a string or null.
func (s *scanner) appendText(dst *[]byte) bool {
	if s.Null() {
		return true
	}
	inside, plain, ok := s.Quoted()
	if ok {
		*dst, ok = upstream.Unquote(*dst, inside, plain)
	}
	return ok
}

func (s *scanner) appendInteger(dst *[]int32) bool {
	n, ok := s.Integer()
	*dst = append(*dst, n)
	return ok
}

// appendLogprob reads a number, or null for one that is missing.
func (s *scanner) appendLogprob(dst *[]float32) bool {
	x, ok := float64(missing), true
	if !s.Null() {
		x, ok = s.Float(32)
	}
	*dst = append(*dst, float32(x))
	return ok
}

// Fields of log-probs, as bits of those that were seen. The first is the newer way's, the others
// are the older's.
const (
	fieldContent = 1 << iota
	fieldTokenLogprobs
	fieldNames
)

// scanLogprobs reads the log-probs of either way.
func (e *event) scanLogprobs(s *scanner) bool {
	if s.Null() {
		return true
	}
	seen := 0
	ok := s.Object(func(key []byte) bool {
		field, ok := 0, true
		switch string(key) {
		case "content":
			field, ok = fieldContent, s.list(func() bool { return e.scanEntry(s) })
		case "token_logprobs":
			field, ok = fieldTokenLogprobs, s.list(func() bool { return s.appendLogprob(&e.logprobs) })
		case "tokens":
			field, ok = fieldNames, s.list(func() bool { return e.scanName(s) })
		default:
			return s.Value()
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
	ok := s.Object(func(key []byte) bool {
		switch string(key) {
		case "logprob":
			return s.appendLogprob(&e.logprobs)
		case "token_id":
			return !s.Null() && s.appendInteger(&e.named)
		case "token":
			return once(&seen) && e.scanName(s)
		}
		return s.Value()
	})
	return ok && len(e.logprobs) == logprobs+1 && len(e.named) <= names+1
}

// scanName reads a token's text, which may stand for its id.
func (e *event) scanName(s *scanner) bool {
	raw, plain, ok := s.Quoted()
	if !ok || !plain && bytes.Contains(raw, []byte(`\u`)) { // it may spell the prefix
		return false
	}
	digits, named := bytes.CutPrefix(raw, []byte(tokenPrefix))
	if !named {
		return true
	}
	if id, err := strconv.ParseInt(string(digits), 10, 32); err == nil {
		e.named = append(e.named, int32(id))
	}
	return plain
}
