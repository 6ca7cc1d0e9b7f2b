package vllm

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// scanner walks over one JSON value by what is expected of it. It knows a part of JSON: where
// something else stands every method reports false, and the caller leaves the value to
// encoding/json. What it does accept means the same there.
type scanner struct {
	data []byte
	at   int
}

// space skips white space.
func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek is the next byte after white space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.at == len(s.data) {
		return 0
	}
	return s.data[s.at]
}

// take goes past one byte, if it comes next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// null goes past null, if it comes next.
func (s *scanner) null() bool { return s.peek() == 'n' && s.word("null") }

func (s *scanner) word(w string) bool {
	if len(s.data)-s.at < len(w) || string(s.data[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

// end reports whether nothing follows.
func (s *scanner) end() bool { return s.peek() == 0 && s.at == len(s.data) }

// key goes past the next key of an object and its colon. Keys in which encoding/json could see
// another by its folding of cases are not accepted.
func (s *scanner) key() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	start := s.at
	for ; s.at < len(s.data); s.at++ {
		c := s.data[s.at]
		if c == '"' {
			key := s.data[start:s.at]
			s.at++
			return key, s.take(':')
		}
		if c < ' ' || c >= utf8.RuneSelf || c == '\\' || c >= 'A' && c <= 'Z' {
			break
		}
	}
	return nil, false
}

// next goes to an object's or a list's next entry: more is false after its closing byte.
func (s *scanner) next(first *bool, closing byte) (more, ok bool) {
	if s.take(closing) {
		return false, true
	}
	if *first {
		*first = false
		return true, true
	}
	return true, s.take(',') && s.peek() != closing
}

// raw goes past a string and returns what stands between its quotes, and whether there are
// escapes in it.
func (s *scanner) raw() (text []byte, escapes, ok bool) {
	if !s.take('"') {
		return nil, false, false
	}
	start := s.at
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return s.data[start : s.at-1], escapes, true
		case c == '\\':
			escapes = true
			s.at++
		case c < ' ':
			return nil, false, false
		}
	}
	return nil, false, false
}

// text goes past a string and adds it to dst. Escapes by number are not accepted, nor is
// anything but UTF-8.
func (s *scanner) text(dst []byte) ([]byte, bool) {
	raw, escapes, ok := s.raw()
	if !ok || !utf8.Valid(raw) {
		return dst, false
	}
	if !escapes {
		return append(dst, raw...), true
	}
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '\\' {
			i++
			place := bytes.IndexByte([]byte(`"\/bfnrt`), raw[i])
			if place < 0 {
				return dst, false
			}
			c = "\"\\/\b\f\n\r\t"[place]
		}
		dst = append(dst, c)
	}
	return dst, true
}

// digits goes past at least one digit.
func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}

// number goes past a number and returns its spelling.
func (s *scanner) number() ([]byte, bool) {
	s.space()
	start := s.at
	s.optional('-')
	if !s.optional('0') && !s.digits() {
		return nil, false
	}
	if s.optional('.') && !s.digits() {
		return nil, false
	}
	if s.optional('e') || s.optional('E') {
		if !s.optional('-') {
			s.optional('+')
		}
		if !s.digits() {
			return nil, false
		}
	}
	return s.data[start:s.at], true
}

// optional goes past one byte if it comes next, without white space.
func (s *scanner) optional(c byte) bool {
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) integer() (int32, bool) {
	text, ok := s.number()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	return int32(n), err == nil
}

func (s *scanner) float() (float32, bool) {
	text, ok := s.number()
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(text), 32)
	return float32(x), err == nil
}

// depthMax bounds how deep values lie that are skipped.
const depthMax = 16

// skip goes past any value.
func (s *scanner) skip(depth int) bool {
	switch c := s.peek(); {
	case depth == depthMax:
		return false
	case c == '{' || c == '[':
		return s.skipEntries(c, depth)
	case c == '"':
		text, escapes, ok := s.raw()
		return ok && (!escapes || plainEscapes(text))
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	default:
		_, ok := s.number()
		return ok
	}
}

// skipEntries goes past an object or a list.
func (s *scanner) skipEntries(opening byte, depth int) bool {
	s.at++
	for first := true; ; {
		more, ok := s.next(&first, opening+2) // } and ] stand two after their counterparts
		if !ok || !more {
			return ok
		}
		if opening == '{' {
			if key, escapes, ok := s.raw(); !ok || escapes && !plainEscapes(key) || !s.take(':') {
				return false
			}
		}
		if !s.skip(depth + 1) {
			return false
		}
	}
}

// plainEscapes reports whether every escape is one of a single letter.
func plainEscapes(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
			if bytes.IndexByte([]byte(`"\/bfnrt`), text[i]) < 0 {
				return false
			}
		}
	}
	return true
}
