package gateway

import (
	"bytes"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/headway-rl/headway/api/protocol"
)

// textlessTokens is how many tokens may come without text before it is read from the tokens: that
// of an engine lags behind by the bytes of a character, or the length of a stop text.
const textlessTokens = 32

// transcript makes the text of a response from pieces: the engine's own, or read from the tokens
// where the engine says none. It never ends inside a character.
type transcript struct {
	gateway *Gateway
	// reading: the engine gives no text. begun: it has given some.
	reading, begun bool
	// text is all that was said; cut the beginning of a character that has not come whole.
	text []byte
	cut  []byte
	// tokens, and the places from which they are read: what stands before read was said, from context
	// on it is read again, since a token's text can depend on those before it.
	tokens        []int32
	context, read int
}

// add returns the text that a piece has brought.
func (t *transcript) add(ctx context.Context, p *piece) ([]byte, error) {
	t.tokens = append(t.tokens, p.tokens...)
	if len(p.text) > 0 && len(t.text) == 0 { // the engine gives text after all
		t.reading, t.begun = false, true
		t.gateway.textless.Store(false)
	}
	if !t.begun && !t.reading {
		t.reading = t.gateway.textless.Load() || len(t.tokens) > textlessTokens
	}
	if t.reading {
		return t.readOn(ctx, false)
	}
	return t.append(t.whole(p.text)), nil
}

// whole returns text up to the last character that is complete.
func (t *transcript) whole(text []byte) []byte {
	if len(t.cut) > 0 {
		text = append(t.cut, text...)
		t.cut = nil
	}
	for n := 1; n <= min(utf8.UTFMax-1, len(text)); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				t.cut = bytes.Clone(last)
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}

func (t *transcript) append(text []byte) []byte {
	t.text = append(t.text, text...)
	return text
}

// readOn reads the tokens that were not read yet. A character that is not complete reads as a
// replacement mark and waits for the tokens that complete it, unless these are the last.
func (t *transcript) readOn(ctx context.Context, last bool) ([]byte, error) {
	if t.gateway.templates == nil || t.read == len(t.tokens) {
		return nil, nil
	}
	before, err := "", error(nil)
	if t.context < t.read {
		before, err = t.gateway.templates.Decode(ctx, t.tokens[t.context:t.read])
	}
	if err != nil {
		return nil, rendering(err, "reading the text of tokens")
	}
	now, err := t.gateway.templates.Decode(ctx, t.tokens[t.context:])
	if err != nil {
		return nil, rendering(err, "reading the text of tokens")
	}
	if !last && (len(now) <= len(before) || strings.HasSuffix(now, "\uFFFD")) {
		return nil, nil
	}
	t.context, t.read = t.read, len(t.tokens)
	if len(now) <= len(before) {
		return nil, nil
	}
	return t.append([]byte(now[len(before):])), nil
}

// finish returns the text that the end of the response has brought beyond its pieces.
func (t *transcript) finish(ctx context.Context, reply *protocol.TurnReply) ([]byte, error) {
	if !t.begun && reply.Text == "" && len(reply.Tokens) > 0 {
		t.reading = true
	}
	if t.reading {
		if n := len(t.tokens); len(reply.Tokens) > n {
			t.tokens = append(t.tokens, reply.Tokens[n:]...)
		}
		text, err := t.readOn(ctx, true)
		if len(t.text) > 0 && reply.Text == "" { // else the tokens may all be special ones
			t.gateway.textless.Store(true)
		}
		return text, err
	}
	return t.rest(ctx, reply)
}

// rest returns what an engine's own text has beyond the pieces. One that says none in the end has
// lost some of it, as it may where a response goes on at another: only the tokens have all of it then.
func (t *transcript) rest(ctx context.Context, reply *protocol.TurnReply) ([]byte, error) {
	all := reply.Text
	if all == "" && len(reply.Tokens) > 0 {
		if t.gateway.templates == nil {
			return t.append(t.cut), nil
		}
		var err error
		if all, err = t.gateway.templates.Decode(ctx, reply.Tokens); err != nil {
			return nil, rendering(err, "reading the text of tokens")
		}
	}
	rest, ok := strings.CutPrefix(all, string(t.text))
	if !ok { // what was sent cannot be taken back, and nothing makes it right
		return nil, protocol.Refuse(protocol.CodeUnavailable, "a piece was lost on its way, and the sent text is not the beginning")
	}
	return t.append([]byte(rest)), nil
}
