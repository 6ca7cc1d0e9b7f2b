package calls

import (
	"bytes"
)

// headMax bounds what may stand where a name is expected, in bytes: more is none.
const headMax = 512

// chunkMax is how much text is looked through at a time, in bytes.
const chunkMax = 512

// state is what a scanner expects next.
type state int

const (
	inContent state = iota
	inReasoning
	// inSection: a further call, or the end of a row of calls.
	inSection
	inName
	inArguments
	inObject
	// inList: a further object of a list, or its end.
	inList
	inParam
	inKeyOf
	inValueTag
	inValue
	inEnd
	// inHeader and inMessage are those of asChannels.
	inHeader
	inMessage
	// inWhole: a response that is decided at its end.
	inWhole
)

// Scanner tells calls and reasoning from the text of one response that arrives in pieces. It is not
// safe for concurrent use.
type Scanner struct {
	d     *Dialect
	tools Tools
	calls bool

	state state
	// in is what is not decided yet. raw is the call that is being read, from the beginning of its frame.
	in, raw []byte
	// room is what in lies in: it is used again once nothing is undecided.
	room  []byte
	index int
	// begun: the name of the present call is said. row counts the complete calls of its section or list.
	begun  bool
	row    int
	list   bool
	counts Counts

	// blank: nothing but spaces has come since the beginning, the last call or reasoning. spaces are they.
	blank, said, called, thought bool
	spaces                       []byte
	// waiting are the spaces at the end of reasoning.
	waiting []byte

	name, id string
	object   object
	both     both
	key      string
	typing   typing
	value    []byte
	first    bool
	// analysis: the present message is reasoning.
	analysis bool
}

// NewScanner returns the scanner of one response. A nil dialect tells nothing from text. Calls are told
// only where there are tools that may be called.
func NewScanner(d *Dialect, tools Tools, callable bool) *Scanner {
	s := &Scanner{d: d, tools: tools, calls: callable, blank: true}
	switch {
	case d == nil:
	case d.body == asChannels:
		s.state = inHeader
	case d.body == asWholeObjects || d.body == asPython:
		if callable {
			s.state = inWhole
		}
	}
	return s
}

// Thinking begins with reasoning: the prompt has opened it.
func (s *Scanner) Thinking() {
	if s.d != nil && s.d.thinkOpen != nil && s.state == inContent {
		s.state = inReasoning
	}
}

// Counts are the attempts to call a tool so far.
func (s *Scanner) Counts() Counts { return s.counts }

// Text reads a further text, which ends at the end of a character.
func (s *Scanner) Text(text []byte, out *Out) {
	if s.d == nil {
		out.Text = append(out.Text, text...)
		return
	}
	if bytes.IndexByte(text, symbolByte) >= 0 {
		text = bytes.ReplaceAll(text, []byte{symbolByte}, []byte("\uFFFD"))
	}
	for len(text) > 0 { // a word is looked for in what has come: little at a time
		n := min(len(text), chunkMax)
		s.add(text[:n]...)
		s.run(out)
		text = text[n:]
	}
}

// Mark reads a token that the dialect Marks.
func (s *Scanner) Mark(id int32, out *Out) {
	if s.d == nil {
		return
	}
	s.add(symbolByte, symbolFirst+byte(s.d.ids[id]))
	s.run(out)
}

// add puts bytes behind the input.
func (s *Scanner) add(more ...byte) {
	begins := len(s.in) == 0
	if s.in = append(s.in, more...); begins {
		s.room = s.in
	}
}

// Finish decides what is open. Stopped says that the response is complete, and not cut off.
func (s *Scanner) Finish(stopped bool, out *Out) {
	if s.d == nil {
		return
	}
	for s.state != inContent && s.state != inReasoning && s.state != inHeader && s.state != inMessage {
		s.close(stopped, out)
		s.run(out)
	}
	switch s.state {
	case inReasoning:
		s.think(s.in, out)
	case inMessage:
		s.message(s.in, out)
	case inHeader:
		if rest := append(s.raw, s.in...); !token(rest) { // else it is a header that no message follows
			s.content(rest, out)
		}
	default:
		s.content(s.in, out)
	}
	s.in, s.raw = nil, nil
	if !s.called && !s.thought {
		out.Text = append(out.Text, s.spaces...)
	}
	s.spaces = nil
}

// close ends a response within a call.
func (s *Scanner) close(stopped bool, out *Out) {
	switch {
	case s.state == inWhole:
		s.whole(stopped, out)
	case s.state == inEnd && stopped && len(s.in) == 0:
		s.complete(out) // it lacks its closing tag alone: some models end their turn instead
	case (s.state == inSection || s.state == inList) && s.row > 0:
		s.state = inContent
	default:
		s.fail(Unclosed, out)
	}
}

// run decides as much as can be.
func (s *Scanner) run(out *Out) {
	for s.step(out) {
	}
}

// step takes one step and reports whether another may follow without more input.
func (s *Scanner) step(out *Out) bool {
	if len(s.in) == 0 {
		return false
	}
	switch s.state {
	case inContent:
		return s.stepContent(out)
	case inReasoning:
		return s.stepReasoning(out)
	case inSection:
		return s.stepSection(out)
	case inName:
		return s.stepName(out)
	case inArguments:
		return s.stepArguments(out)
	case inObject:
		return s.stepObject(out)
	case inList:
		return s.stepList(out)
	case inParam:
		return s.stepParam(out)
	case inKeyOf:
		return s.stepKey(out)
	case inValueTag:
		return s.stepValueTag(out)
	case inValue:
		return s.stepValue(out)
	case inEnd:
		return s.stepEnd(out)
	case inHeader:
		return s.stepHeader(out)
	case inMessage:
		return s.stepMessage(out)
	}
	return s.stepWhole(out)
}

// find returns the place of the first word in the input and which it is, -1 for none. Behind safe bytes
// a word may begin that has not come whole.
func (s *Scanner) find(words ...[]byte) (at, which, safe int) {
	at, which, safe = -1, -1, len(s.in)
	for i, word := range words {
		if len(word) == 0 || bytes.IndexByte(s.in, word[0]) < 0 {
			continue
		}
		if n := bytes.Index(s.in, word); n >= 0 && (at < 0 || n < at) {
			at, which = n, i
		}
		safe = min(safe, len(s.in)-beginning(s.in, word))
	}
	if at >= 0 && safe < at { // what may begin earlier is longer than what was found
		at, which = -1, -1
	}
	return at, which, safe
}

// beginning is the length of the longest end of text that begins word without being it.
func beginning(text, word []byte) int {
	for n := min(len(text), len(word)-1); n > 0; n-- {
		if bytes.Equal(text[len(text)-n:], word[:n]) {
			return n
		}
	}
	return 0
}

// begins reports whether the input begins with word, or may once more has come.
func (s *Scanner) begins(word []byte) (is, may bool) {
	if len(word) == 0 {
		return false, false
	}
	if len(s.in) >= len(word) {
		is = bytes.HasPrefix(s.in, word)
		return is, is
	}
	return false, bytes.HasPrefix(word, s.in)
}

// beginsOne is the place of the first of words that the input begins with, -1 for none; it may be one of them once more has
// come.
func (s *Scanner) beginsOne(words [][]byte) (which int, may bool) {
	for i, word := range words {
		is, maybe := s.begins(word)
		if is {
			return i, true
		}
		may = may || maybe
	}
	return -1, may
}

// drop takes n bytes off the input.
func (s *Scanner) drop(n int) {
	if s.in = s.in[n:]; len(s.in) == 0 {
		s.in = s.room[:0]
	}
}

// keep moves n bytes of the input to the call that is being read.
func (s *Scanner) keep(n int) {
	s.raw = append(s.raw, s.in[:n]...)
	s.drop(n)
}

// space keeps the spaces that the input begins with.
func (s *Scanner) space() {
	s.keep(len(s.in) - len(bytes.TrimLeft(s.in, " \t\r\n")))
}

// plain writes words that are tokens as text.
func (s *Scanner) plain(text []byte) []byte {
	if bytes.IndexByte(text, symbolByte) < 0 {
		return text
	}
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] == symbolByte {
			i++
			out = append(out, s.d.words[text[i]-symbolFirst]...)
			continue
		}
		out = append(out, text[i])
	}
	return out
}

// content adds text, once something in it is not space. Spaces alone beside calls are not content, nor
// are those between reasoning and an answer.
func (s *Scanner) content(text []byte, out *Out) {
	text = s.plain(text)
	if s.blank {
		trimmed := bytes.TrimLeft(text, " \t\r\n")
		if len(trimmed) == 0 {
			s.spaces = append(s.spaces, text...)
			return
		}
		if s.thought && !s.said {
			text = trimmed
		} else {
			out.Text = append(out.Text, s.spaces...)
		}
		s.blank, s.spaces = false, s.spaces[:0]
	}
	s.said = true
	out.Text = append(out.Text, text...)
}

// think adds reasoning without the spaces around it.
func (s *Scanner) think(text []byte, out *Out) {
	text = s.plain(text)
	if !s.thought {
		if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 {
			return
		}
		s.thought = true
	}
	end := len(bytes.TrimRight(text, " \t\r\n"))
	if end > 0 {
		out.Reasoning = append(append(out.Reasoning, s.waiting...), text[:end]...)
		s.waiting = s.waiting[:0]
	}
	s.waiting = append(s.waiting, text[end:]...)
}

// stepContent looks for what is not content.
func (s *Scanner) stepContent(out *Out) bool {
	thinks, section, opens := s.d.thinkOpen, s.d.sectionOpen, s.d.opens
	if s.said || s.called || s.thought {
		thinks = asToken(thinks) // letters that come later are quoted
	}
	if section != nil {
		opens = asToken(opens)
	}
	if !s.calls {
		section, opens = nil, nil
	}
	at, which, safe := s.find(thinks, section, opens)
	if at < 0 {
		s.content(s.in[:safe], out)
		s.drop(safe)
		return false
	}
	s.content(s.in[:at], out)
	s.drop(at)
	switch which {
	case 0:
		s.drop(len(thinks))
		s.state, s.blank, s.spaces = inReasoning, true, s.spaces[:0]
		if s.thought {
			s.waiting = append(s.waiting[:0], '\n')
		}
	case 1:
		s.keep(len(section))
		s.state, s.row = inSection, 0
	case 2:
		s.row = 0
		s.open(len(opens))
	}
	return true
}

func asToken(word []byte) []byte {
	if token(word) {
		return word
	}
	return nil
}

// stepReasoning looks for the end of reasoning: its tag, or a call whose frame is of tokens.
func (s *Scanner) stepReasoning(out *Out) bool {
	section, opens := asToken(s.d.sectionOpen), asToken(s.d.opens)
	if !s.calls {
		section, opens = nil, nil
	}
	at, which, safe := s.find(s.d.thinkClose, section, opens)
	if at < 0 {
		s.think(s.in[:safe], out)
		s.drop(safe)
		return false
	}
	s.think(s.in[:at], out)
	s.drop(at)
	if which == 0 {
		s.drop(len(s.d.thinkClose))
	}
	s.state, s.blank, s.waiting, s.thought = inContent, true, s.waiting[:0], true
	return true
}

// complete ends a call that is one.
func (s *Scanner) complete(out *Out) {
	if _, ok := s.tools[s.name]; ok {
		s.counts[OK]++
	} else {
		s.counts[UnknownTool]++
	}
	s.index++
	s.row++
	s.raw, s.begun = s.raw[:0], false
	s.blank, s.called, s.spaces = true, true, s.spaces[:0]
	switch {
	case s.list:
		s.state = inList
	case s.d.body == asChannels:
		s.state = inHeader
	case s.d.sectionOpen != nil:
		s.state = inSection
	default:
		s.state = inContent
	}
}

// fail makes text of a call that is none.
func (s *Scanner) fail(status Status, out *Out) {
	s.counts[status]++
	if s.begun {
		out.broken(s.index)
		s.index++
		s.begun = false
	}
	raw := s.raw
	s.raw, s.list, s.state = nil, false, inContent
	if s.d.body == asChannels {
		s.state, s.analysis = inMessage, false
	}
	s.content(raw, out)
}

// say begins a call with its name.
func (s *Scanner) say(out *Out) {
	s.begun = true
	out.begin(s.index, s.name, s.id)
}
