package gateway

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"
)

// said is what a parser has made of a response so far, or of a piece of it.
type said struct {
	text  []byte
	calls []toolCall
}

// callParser tells calls of tools from text, in a response that arrives in pieces. What it makes of
// a response does not depend on where it is cut.
type callParser interface {
	// feed adds to out what a further piece of text has decided.
	feed(text []byte, out *said)
	// finish adds what was left open; stopped says that the response is complete.
	finish(stopped bool, out *said)
}

// newCallParser returns the parser of a request's responses.
func newCallParser(req *request, tools string) callParser {
	switch {
	case !req.calls:
		return plainText{}
	case tools == "llama3":
		return &llama3Parser{offered: req.offered}
	}
	return &hermesParser{blank: true}
}

// plainText parses nothing.
type plainText struct{}

func (plainText) feed(text []byte, out *said) { out.text = append(out.text, text...) }
func (plainText) finish(bool, *said)          {}

const (
	callOpens  = "<tool_call>"
	callCloses = "</tool_call>"
	pythonTag  = "<|python_tag|>"
)

// hermesParser reads calls that stand as JSON objects between tags. Space alone before, between or
// after calls is not content.
type hermesParser struct {
	// held is text that is not decided yet: the beginning of a tag, or a call from its tag on. It lies
	// in buffer, whose room is used again once nothing is held.
	held, buffer []byte
	inside       bool
	// searched: no closing tag begins before it in held. A response may be nothing but opening tags,
	// and nothing of it is looked through twice.
	searched int
	// blank: nothing but spaces has been seen since the beginning or the last call.
	blank  bool
	spaces []byte
	called bool
}

func (p *hermesParser) feed(text []byte, out *said) {
	if len(p.held) == 0 {
		p.held = p.buffer[:0]
		p.held = append(p.held, text...)
		p.buffer = p.held
	} else {
		p.held = append(p.held, text...)
	}
	for {
		if !p.inside {
			at := bytes.Index(p.held, []byte(callOpens))
			if at < 0 {
				keep := overlapText(p.held, callOpens)
				p.content(p.held[:len(p.held)-keep], out)
				p.drop(len(p.held) - keep)
				return
			}
			p.content(p.held[:at], out)
			p.drop(at)
			p.inside = true
		}
		p.searched = max(p.searched, len(callOpens))
		at := bytes.Index(p.held[p.searched:], []byte(callCloses))
		if at < 0 {
			p.searched = max(p.searched, len(p.held)-len(callCloses)+1)
			return
		}
		at += p.searched
		p.searched = at
		if call, ok := readCall(p.held[len(callOpens):at]); ok {
			p.call(call, out)
			p.drop(at + len(callCloses))
			continue
		}
		p.reopen(out)
	}
}

// finish takes a call that lacks only its closing tag: some models end their turn instead.
func (p *hermesParser) finish(stopped bool, out *said) {
	for p.inside {
		if call, ok := readCall(p.held[len(callOpens):]); ok && stopped {
			p.call(call, out)
			p.drop(len(p.held))
			break
		}
		p.reopen(out)
		p.feed(nil, out)
	}
	p.content(p.held, out)
	p.drop(len(p.held))
	if !p.called {
		out.text = append(out.text, p.spaces...)
	}
	p.spaces = nil
}

// reopen makes text of a tag that no call follows, and looks for one behind it.
func (p *hermesParser) reopen(out *said) {
	p.content(p.held[:len(callOpens)], out)
	p.drop(len(callOpens))
	p.inside = false
}

func (p *hermesParser) call(call toolCall, out *said) {
	out.calls = append(out.calls, call)
	p.inside, p.called, p.blank, p.spaces = false, true, true, p.spaces[:0]
}

// content adds text, once something in it is not space.
func (p *hermesParser) content(text []byte, out *said) {
	if p.blank {
		if len(bytes.TrimSpace(text)) == 0 {
			p.spaces = append(p.spaces, text...)
			return
		}
		out.text = append(out.text, p.spaces...)
		p.blank, p.spaces = false, p.spaces[:0]
	}
	out.text = append(out.text, text...)
}

func (p *hermesParser) drop(n int) {
	p.held, p.searched = p.held[n:], max(0, p.searched-n)
}

// overlapText is the length of the longest end of text that begins tag without being it.
func overlapText(text []byte, tag string) int {
	for n := min(len(text), len(tag)-1); n > 0; n-- {
		if string(text[len(text)-n:]) == tag[:n] {
			return n
		}
	}
	return 0
}

// llama3Parser reads responses that are nothing but JSON objects, each a call of a tool that was
// offered. It decides at the end: an object that names no tool is an answer.
type llama3Parser struct {
	offered map[string]bool
	held    []byte
	plain   bool
}

func (p *llama3Parser) feed(text []byte, out *said) {
	if p.plain {
		out.text = append(out.text, text...)
		return
	}
	p.held = append(p.held, text...)
	start := bytes.TrimSpace(p.held)
	begins := len(start) == 0 || start[0] == '{' || bytes.HasPrefix(start, []byte(pythonTag)) || strings.HasPrefix(pythonTag, string(start))
	if !begins {
		p.plain = true
		out.text = append(out.text, p.held...)
		p.held = nil
	}
}

func (p *llama3Parser) finish(stopped bool, out *said) {
	calls, ok := p.calls()
	if ok && stopped {
		out.calls = append(out.calls, calls...)
	} else {
		out.text = append(out.text, p.held...)
	}
	p.held = nil
}

// calls reads the whole response as calls, one after the other, parted by spaces or semicolons.
func (p *llama3Parser) calls() ([]toolCall, bool) {
	rest := bytes.TrimSpace(p.held)
	rest = bytes.TrimSpace(bytes.TrimPrefix(rest, []byte(pythonTag)))
	var calls []toolCall
	for len(rest) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(rest))
		var raw json.RawMessage
		if decoder.Decode(&raw) != nil {
			return nil, false
		}
		call, ok := readCall(raw)
		if !ok || !p.offered[call.Function.Name] {
			return nil, false
		}
		calls = append(calls, call)
		rest = bytes.TrimLeft(rest[decoder.InputOffset():], "; \t\r\n")
	}
	return calls, len(calls) > 0
}

// readCall reads one call, {"name": …, "arguments": {…}}; llama3 says parameters.
func readCall(text []byte) (toolCall, bool) {
	var call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(text, &call) != nil || call.Name == "" {
		return toolCall{}, false
	}
	raw := call.Arguments
	if !given(raw) {
		raw = call.Parameters
	}
	arguments := "{}"
	if given(raw) {
		arguments = string(raw)
		if raw[0] == '"' && json.Unmarshal(raw, &arguments) != nil {
			return toolCall{}, false
		}
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) != nil || object == nil {
		return toolCall{}, false
	}
	return toolCall{ID: "call_" + rand.Text(), Type: "function", Function: calledByName{call.Name, arguments}}, true
}
