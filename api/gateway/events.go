package gateway

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
)

// events writes a response as server-sent events. What does not change from one to the next is
// formatted once; the rest is appended, and an event allocates nothing.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	req     *request
	// head is every event's beginning, opening what comes before the text of the present choice, and
	// closing what comes after its text where no token is named.
	head, opening, closing, tail []byte
	line                         []byte
	// began: the status is out.
	began bool
}

func newEvents(w http.ResponseWriter, req *request, id, model string, created int64) *events {
	e := &events{w: w, control: http.NewResponseController(w), req: req}
	object := "text_completion"
	if req.chat {
		object = "chat.completion.chunk"
	}
	e.head = append(e.head, `data: {"id":`...)
	e.head = appendText(e.head, []byte(id))
	e.head = append(e.head, `,"object":"`+object+`","created":`...)
	e.head = strconv.AppendInt(e.head, created, 10)
	e.head = append(e.head, `,"model":`...)
	e.head = appendText(e.head, []byte(model))
	e.head = append(e.head, ',')
	e.tail = []byte("}\n\n")
	if req.usage {
		e.tail = []byte(",\"usage\":null}\n\n")
	}
	return e
}

// begin sends the status: from here on an error is an event.
func (e *events) begin() {
	if e.began {
		return
	}
	e.began = true
	header := e.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	header.Set("X-Content-Type-Options", "nosniff")
	e.w.WriteHeader(http.StatusOK)
}

func (e *events) send(line []byte) error {
	e.begin()
	if _, err := e.w.Write(line); err != nil {
		return err
	}
	return e.control.Flush()
}

// heartbeat is a comment: clients skip it, and nothing between takes the connection for dead.
func (e *events) heartbeat() error { return e.send([]byte(": waiting\n\n")) }

// choice begins a choice: its first event has the role, or the tokens of the prompt where they are asked for.
func (e *events) choice(index int, prompt []int32) error {
	e.opening = append(e.opening[:0], e.head...)
	e.opening = append(e.opening, `"choices":[{"index":`...)
	e.opening = strconv.AppendInt(e.opening, int64(index), 10)
	if !e.req.chat {
		e.opening = append(e.opening, `,"text":`...)
		e.closing = append(append(e.closing[:0], `,"logprobs":null,"finish_reason":null}]`...), e.tail...)
		if !e.req.tokenIDs {
			return nil
		}
		line := append(append(e.line[:0], e.opening...), `"","logprobs":null,"finish_reason":null,"prompt_token_ids":`...)
		line = append(append(appendTokens(line, prompt), `}]`...), e.tail...)
		e.line = line
		return e.send(line)
	}
	e.opening = append(e.opening, `,"delta":{`...)
	e.closing = append(append(e.closing[:0], `},"logprobs":null,"finish_reason":null}]`...), e.tail...)
	line := append(e.line[:0], e.head...)
	if e.req.tokenIDs && index == 0 {
		line = append(appendTokens(append(line, `"prompt_token_ids":`...), prompt), ',')
	}
	line = append(line, e.opening[len(e.head):]...)
	line = append(append(line, `"role":"assistant","content":""`...), e.closing...)
	e.line = line
	return e.send(line)
}

// piece sends what a piece of a response has brought. Nothing is sent where it brought nothing to see.
func (e *events) piece(s *calls.Out, p *piece) error {
	named := (e.req.tokenIDs || e.req.logprobs) && len(p.tokens) > 0
	thought := len(s.Reasoning) > 0 && !e.req.hidden
	called := slices.ContainsFunc(s.Deltas, tells)
	if len(s.Text) == 0 && !called && !thought && !named {
		return nil
	}
	line := append(e.line[:0], e.opening...)
	if thought {
		line = append(appendText(append(line, `"reasoning_content":`...), s.Reasoning), ',')
	}
	if e.req.chat {
		line = append(line, `"content":`...)
	}
	line = appendText(line, s.Text)
	if called {
		line = appendCalls(line, s.Deltas)
	}
	if named {
		line = e.appendNamed(line, p)
	} else {
		line = append(line, e.closing...)
	}
	e.line = line
	return e.send(line)
}

// appendNamed closes an event that names its tokens.
func (e *events) appendNamed(line []byte, p *piece) []byte {
	if e.req.chat {
		line = append(line, '}')
	}
	line = append(line, `,"logprobs":`...)
	if e.req.logprobs {
		line = appendLogprobs(line, e.req.chat, p.tokens, p.logprobs)
	} else {
		line = append(line, `null`...)
	}
	line = append(line, `,"finish_reason":null`...)
	if e.req.tokenIDs {
		line = appendTokens(append(line, `,"token_ids":`...), p.tokens)
	}
	return append(append(line, `}]`...), e.tail...)
}

// end sends a choice's last event.
func (e *events) end(c *choice) error {
	line := append(e.line[:0], e.opening...)
	if e.req.chat {
		line = append(line, '}')
	} else {
		line = append(line, `""`...)
	}
	line = append(line, `,"logprobs":null,"finish_reason":"`...)
	line = append(append(line, c.finish...), `","headway":`...)
	line = append(append(line, c.record()...), `}]`...)
	e.line = append(line, e.tail...)
	return e.send(e.line)
}

// done sends what ends a stream that is complete.
func (e *events) done(u usage) error {
	line := e.line[:0]
	if e.req.usage {
		line = append(append(line, e.head...), `"choices":[],"usage":`...)
		line = fmt.Appendf(line, `{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, u.Prompt, u.Completion, u.Total)
		line = append(line, "\n\n"...)
	}
	e.line = append(line, "data: [DONE]\n\n"...)
	return e.send(e.line)
}

// fail sends an error in place of the rest.
func (e *events) fail(refusal *protocol.Refusal) {
	line := append(e.line[:0], "data: "...)
	line = append(line, protocol.CompletionErrorText(refusal)...)
	_ = e.send(append(line, "\n\n"...)) // who does not read it has left
}

// tells reports whether there is something in a delta for a client to see.
func tells(d calls.Delta) bool { return d.Name != "" || len(d.Arguments) > 0 }

// appendCalls adds what has become known of calls: the name once, then arguments.
func appendCalls(line []byte, deltas []calls.Delta) []byte {
	line = append(line, `,"tool_calls":[`...)
	first := true
	for _, d := range deltas {
		if !tells(d) {
			continue
		}
		if !first {
			line = append(line, ',')
		}
		first = false
		line = strconv.AppendInt(append(line, `{"index":`...), int64(d.Index), 10)
		if d.Name != "" {
			line = appendText(append(line, `,"id":`...), []byte(d.ID))
			line = appendText(append(line, `,"type":"function","function":{"name":`...), []byte(d.Name))
			line = append(line, ',')
		} else {
			line = append(line, `,"function":{`...)
		}
		line = append(appendText(append(line, `"arguments":`...), d.Arguments), `}}`...)
	}
	return append(line, ']')
}

func appendTokens(line []byte, tokens []int32) []byte {
	line = append(line, '[')
	for i, id := range tokens {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendInt(line, int64(id), 10)
	}
	return append(line, ']')
}

// appendLogprobs adds log-probs in the shape of a chat or of a completion. Tokens are named by their
// ids, as vLLM does where it is asked to: the text of a token by itself need not be text.
func appendLogprobs(line []byte, chat bool, tokens []int32, logprobs []float32) []byte {
	if chat {
		line = append(line, `{"content":[`...)
		for i, id := range tokens {
			if i > 0 {
				line = append(line, ',')
			}
			line = strconv.AppendInt(append(line, `{"token":"token_id:`...), int64(id), 10)
			line = appendLogprob(append(line, `","logprob":`...), logprobs, i)
			line = append(line, `,"bytes":null,"top_logprobs":[]}`...)
		}
		return append(line, `],"refusal":null}`...)
	}
	line = append(line, `{"tokens":[`...)
	for i, id := range tokens {
		if i > 0 {
			line = append(line, ',')
		}
		line = append(strconv.AppendInt(append(line, `"token_id:`...), int64(id), 10), '"')
	}
	line = append(line, `],"token_logprobs":[`...)
	for i := range tokens {
		if i > 0 {
			line = append(line, ',')
		}
		line = appendLogprob(line, logprobs, i)
	}
	return append(line, `],"top_logprobs":null,"text_offset":null}`...)
}

// appendLogprob adds one log-prob, null where there is none: JSON has no word for infinity.
func appendLogprob(line []byte, logprobs []float32, i int) []byte {
	if i >= len(logprobs) || math.IsNaN(float64(logprobs[i])) || math.IsInf(float64(logprobs[i]), 0) {
		return append(line, `null`...)
	}
	return strconv.AppendFloat(line, float64(logprobs[i]), 'g', -1, 32)
}

const hexDigits = "0123456789abcdef"

// appendText adds a text as JSON. Beside what JSON asks for, the marks that some readers take for
// the end of a line are escaped: an event is one line.
func appendText(line, text []byte) []byte {
	line = append(line, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRune(text[i:]); !(r == utf8.RuneError && size == 1) && r != '\u2028' && r != '\u2029' && r != '\u0085' {
				i += size
				continue
			}
		}
		line = append(line, text[start:i]...)
		line = appendEscape(line, text[i:i+size])
		i += size
		start = i
	}
	return append(append(line, text[start:]...), '"')
}

func appendEscape(line, char []byte) []byte {
	switch char[0] {
	case '"', '\\':
		return append(line, '\\', char[0])
	case '\n':
		return append(line, '\\', 'n')
	case '\r':
		return append(line, '\\', 'r')
	case '\t':
		return append(line, '\\', 't')
	}
	r, _ := utf8.DecodeRune(char)
	return append(line, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
