package calls

import (
	"bytes"
	"strings"
)

// The words of asChannels, by their place in the grammar's words.
const (
	wordStart = iota
	wordChannel
	wordConstrain
	wordMessage
	wordEnd
	wordCall
	wordReturn
)

// stepHeader reads the header of a message. A response that does not begin with one is a message.
func (s *Scanner) stepHeader(out *Out) bool {
	words := s.d.head
	if len(s.raw) == 0 {
		if !s.mayBeHeader(words) {
			s.state, s.analysis = inMessage, false
			return true
		}
	}
	at, which, _ := s.find(words[wordStart], words[wordMessage], words[wordEnd], words[wordCall], words[wordReturn])
	switch {
	case at < 0 && len(s.in) > headMax:
		s.state, s.analysis = inMessage, false
		return true
	case at < 0:
		return false
	case which == 0: // what stood before it says nothing
		s.drop(at + len(words[wordStart]))
		s.raw = append(s.raw[:0], words[wordStart]...)
		return true
	case which > 1:
		s.raw = s.raw[:0]
		s.drop(at + len(words[wordEnd+which-2]))
		return true
	}
	head := bytes.Clone(s.in[:at])
	s.keep(at + len(words[wordMessage]))
	s.header(head, words, out)
	return true
}

// mayBeHeader reports whether the input begins a header, or may.
func (s *Scanner) mayBeHeader(words [][]byte) bool {
	rest := bytes.TrimLeft(s.in, " \t\r\n")
	if len(rest) == 0 || bytes.HasPrefix([]byte("to="), rest[:min(3, len(rest))]) {
		return true
	}
	for _, word := range words {
		if n := min(len(word), len(rest)); bytes.Equal(rest[:n], word[:n]) {
			return true
		}
	}
	return false
}

// header begins the message that a header announces.
func (s *Scanner) header(head []byte, words [][]byte, out *Out) {
	before, behind, _ := bytes.Cut(head, words[wordChannel])
	fields := strings.Fields(string(s.plain(bytes.ReplaceAll(behind, words[wordConstrain], []byte(" ")))))
	channel := ""
	if len(fields) > 0 {
		channel = fields[0]
	}
	to := ""
	for _, field := range append(strings.Fields(string(s.plain(before))), fields...) {
		if name, ok := strings.CutPrefix(field, "to="); ok {
			to = name
		}
	}
	name, function := strings.CutPrefix(to, "functions.")
	if _, offered := s.tools[to]; s.calls && to != "" && (function || offered) {
		s.name, s.id, s.list = name, "", false
		s.state, s.object = inArguments, object{open: s.object.open[:0]}
		if name == "" {
			s.fail(MissingName, out)
		}
		return
	}
	if s.analysis = channel == "analysis"; s.analysis && s.thought {
		s.waiting = append(s.waiting[:0], '\n')
	}
	s.raw, s.state = s.raw[:0], inMessage
}

// stepMessage reads a message's text, up to its end or the next.
func (s *Scanner) stepMessage(out *Out) bool {
	words := s.d.head
	at, which, safe := s.find(words[wordStart], words[wordChannel], words[wordEnd], words[wordCall], words[wordReturn])
	if at < 0 {
		s.message(s.in[:safe], out)
		s.drop(safe)
		return false
	}
	s.message(s.in[:at], out)
	if s.drop(at); which > 1 {
		s.drop(len(words[wordEnd+which-2]))
	}
	s.waiting = s.waiting[:0]
	s.state = inHeader
	return true
}

func (s *Scanner) message(text []byte, out *Out) {
	if s.analysis {
		s.think(text, out)
	} else {
		s.content(text, out)
	}
}
