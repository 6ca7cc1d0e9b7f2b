package calls

import (
	"bytes"
	"encoding/json"
	"strings"
)

// open begins a call whose first word has n bytes.
func (s *Scanner) open(n int) {
	s.keep(n)
	s.name, s.id, s.list = "", "", false
	switch s.d.body {
	case asObject:
		s.beginObject()
	case asList:
		s.state, s.list = inList, false
	default:
		s.state = inName
	}
}

// stepSection takes a further call of a row, or its end.
func (s *Scanner) stepSection(out *Out) bool {
	at := s.in
	s.space()
	if len(s.in) == 0 {
		return false
	}
	is, may := s.begins(s.d.opens)
	if is {
		s.open(len(s.d.opens))
		return true
	}
	ends, mayEnd := s.begins(s.d.sectionClose)
	if may || mayEnd && !ends {
		return false
	}
	switch {
	case s.row == 0:
		if ends {
			s.keep(len(s.d.sectionClose))
		}
		s.fail(Malformed, out)
	case ends:
		s.drop(len(s.d.sectionClose))
		s.raw, s.state = s.raw[:0], inContent
	default:
		s.in, s.raw, s.state = at, s.raw[:0], inContent
	}
	return true
}

// brokenAt ends a call at a word of the frame that cannot stand in it; the word stays in the input.
func (s *Scanner) brokenAt(at int, status Status, out *Out) bool {
	s.keep(at)
	s.fail(status, out)
	return true
}

// stepName reads up to the end of the name.
func (s *Scanner) stepName(out *Out) bool {
	words := append([][]byte{s.d.opens, s.d.sectionOpen, s.d.sectionClose}, s.d.nameEnds...)
	at, which, _ := s.find(words...)
	switch {
	case at < 0 && len(s.in) > headMax:
		return s.brokenAt(len(s.in), Malformed, out)
	case at < 0:
		return false
	case which < 3:
		return s.brokenAt(at, Malformed, out)
	}
	head, word := s.in[:at], words[which]
	if s.d.after != nil {
		_, behind, ok := bytes.Cut(head, s.d.after)
		if !ok {
			behind = nil
		}
		head = behind
	}
	s.readName(string(bytes.TrimSpace(s.plain(head))))
	consumed := s.d.nameEnd != "" && which == 3
	s.keep(at)
	if consumed {
		s.keep(len(word))
	}
	switch {
	case s.name == "":
		s.fail(MissingName, out)
	case strings.ContainsAny(s.name, " \t\r\n<>"):
		s.fail(Malformed, out)
	case s.d.body == asTags:
		s.say(out)
		s.state, s.first = inParam, true
	default:
		s.state, s.object = inArguments, object{open: s.object.open[:0]}
	}
	return true
}

// readName reads a name and what else its place says.
func (s *Scanner) readName(head string) {
	s.name, s.id = head, ""
	if name, id, ok := strings.Cut(head, "[CALL_ID]"); ok && s.d.body == asList {
		s.name, s.id = name, id
	}
	if s.d.nameID {
		s.id = head
		s.name, _, _ = strings.Cut(strings.TrimPrefix(head, "functions."), ":")
	}
}

// stepArguments reads arguments that are one object.
func (s *Scanner) stepArguments(out *Out) bool {
	if s.object.at == atBegin {
		s.space()
		if len(s.in) == 0 {
			return false
		}
		if is, may := s.endsHere(); is { // nothing at all
			s.say(out)
			*out.arguments(s.index) = append(*out.arguments(s.index), "{}"...)
			s.state = inEnd
			return true
		} else if may {
			return false
		}
		if s.in[0] != '{' {
			s.fail(InvalidJSON, out)
			return true
		}
		s.say(out)
	}
	to := out.arguments(s.index)
	n, ok := s.read(func(text []byte, _ place, _ int) { *to = append(*to, text...) })
	s.keep(n)
	switch {
	case !ok:
		s.fail(InvalidJSON, out)
	case s.object.complete():
		s.state = inEnd
	default:
		return false
	}
	return true
}

// endsHere reports whether the input begins with the end of a call.
func (s *Scanner) endsHere() (is, may bool) {
	which, may := s.beginsOne(s.d.enders)
	return which >= 0, may
}

// read reads an object's bytes and hands each on with what was expected of it. It returns how many it
// has read, and false where the next cannot stand there.
func (s *Scanner) read(each func(text []byte, was place, depth int)) (n int, ok bool) {
	for n < len(s.in) && !s.object.complete() {
		text := s.in[n : n+1]
		size := 1
		if text[0] == symbolByte {
			if size = 2; !s.object.text() || s.d.frames(s.in[n:n+2]) {
				return n, false
			}
			text = s.plain(s.in[n : n+2])
		}
		was, depth := s.object.at, len(s.object.open)
		for _, b := range text {
			if !s.object.next(b) {
				return n, false
			}
		}
		each(text, was, depth)
		n += size
	}
	return n, true
}

// frames reports whether a token belongs to the frame of calls, so that it cannot stand in a text.
func (d *Dialect) frames(symbol []byte) bool {
	if d.body == asChannels {
		return true
	}
	for _, word := range [][]byte{d.opens, d.ends, d.sectionOpen, d.sectionClose} {
		if bytes.Contains(word, symbol) {
			return true
		}
	}
	return false
}

// stepEnd takes the word that ends a call.
func (s *Scanner) stepEnd(out *Out) bool {
	if s.d.ends == nil && s.d.body != asChannels {
		s.complete(out)
		return true
	}
	s.space()
	if len(s.in) == 0 {
		return false
	}
	which, maybe := s.beginsOne(s.d.enders)
	switch {
	case which >= 0:
		s.drop(len(s.d.enders[which]))
		s.complete(out)
	case maybe:
		return false
	default:
		s.fail(Malformed, out)
	}
	return true
}

// both is what is known of an object that has a name and arguments.
type both struct {
	text []byte
	// from is where the present key or value begins, key which it is.
	from int
	key  string
	// kind is the first byte of the arguments, 0 for none; arguments stand in text from and to here.
	kind       byte
	begin, end int
	// said: the arguments are said as they come.
	said bool
}

func (s *Scanner) beginObject() {
	s.state, s.object, s.both = inObject, object{open: s.object.open[:0]}, both{text: s.both.text[:0]}
	s.name, s.id = "", ""
}

// stepObject reads an object with a name and arguments.
func (s *Scanner) stepObject(out *Out) bool {
	n, ok := s.read(func(text []byte, was place, depth int) { s.part(text, was, depth, out) })
	s.keep(n)
	switch {
	case !ok:
		s.fail(InvalidJSON, out)
	case s.object.complete():
		if status := s.whatObject(out); status != OK {
			s.fail(status, out)
			return true
		}
		if s.list {
			s.complete(out)
		} else {
			s.state = inEnd
		}
	default:
		return false
	}
	return true
}

// part takes a byte of an object: was is what was expected before it, at a depth.
func (s *Scanner) part(text []byte, was place, depth int, out *Out) {
	b, o := &s.both, &s.object
	at := len(b.text)
	b.text = append(b.text, text...)
	now := len(o.open)
	if b.said && now >= 1 && !(now == 1 && depth == 1) {
		to := out.arguments(s.index)
		*to = append(*to, text...)
	}
	switch {
	case depth == 1 && o.at == inKey && (was == atKey || was == atFirst):
		b.from = at
	case depth == 1 && was == inKey && o.at == atColon:
		b.key = unquote(b.text[b.from:])
	case depth == 1 && was == atValue && o.at != atValue:
		b.from = at
		if s.isArguments() && (b.kind == 0 || b.kind == 'n') {
			b.begin, b.end, b.kind = at, 0, text[0]
			if text[0] == '{' && s.name != "" {
				b.said = true
				s.say(out)
				*out.arguments(s.index) = append(*out.arguments(s.index), '{')
			}
		}
	case depth == 2 && now == 1 && (text[0] == '}' || text[0] == ']'), depth == 1 && was == inString && o.at == atNext:
		if b.key == "name" && b.text[b.from] == '"' && s.name == "" {
			s.name = unquote(b.text[b.from:])
		}
		if s.isArguments() && b.begin == b.from && b.end == 0 {
			b.end = len(b.text)
			b.said = false
		}
	}
}

func (s *Scanner) isArguments() bool { return s.both.key == "arguments" || s.both.key == "parameters" }

func unquote(text []byte) string {
	var out string
	if json.Unmarshal(text, &out) != nil {
		return ""
	}
	return out
}

// whatObject says what has not been said of an object that is complete.
func (s *Scanner) whatObject(out *Out) Status {
	b := &s.both
	if s.name == "" {
		return MissingName
	}
	if s.begun {
		return OK
	}
	arguments := []byte("{}")
	switch b.kind {
	case 0, 'n':
	case '{':
		arguments = b.text[b.begin:b.end]
	case '"':
		arguments = []byte(unquote(b.text[b.begin:b.end]))
		var fields map[string]json.RawMessage
		if json.Unmarshal(arguments, &fields) != nil || fields == nil {
			return Malformed
		}
	default:
		return Malformed
	}
	s.say(out)
	to := out.arguments(s.index)
	*to = append(*to, arguments...)
	return OK
}

// stepList takes what follows the beginning of a list: an object or a name before it, too.
func (s *Scanner) stepList(out *Out) bool {
	s.space()
	if len(s.in) == 0 {
		return false
	}
	next := s.in[0]
	switch {
	case !s.list && next == '[' && len(s.raw) > 0:
		s.keep(1)
		s.list = true
	case !s.list && next == '{':
		s.beginObject()
	case !s.list:
		s.state = inName
	case next == ']' && s.row > 0:
		s.drop(1)
		s.raw, s.list, s.state = s.raw[:0], false, inContent
	case next == ',' && s.row > 0, next == '{' && s.row == 0:
		if next == ',' {
			s.keep(1)
		}
		s.beginObject()
	default:
		s.fail(Malformed, out)
	}
	return true
}
