package gateway

import (
	"bytes"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
)

// textlessTokens is how many tokens may come without text before it is read from the tokens: that
// of an engine lags behind by the bytes of a character, or the length of a stop text.
const textlessTokens = 32

// part is a piece of what a response says: a text, or a token that is a word of the frame of calls.
type part struct {
	text []byte
	mark int32
}

// transcript makes the text of a response from pieces: the engine's own, or read from the tokens
// where the engine says none. It never ends inside a character. Tokens that frame calls are handed on
// where they stand: the text before such a token is read from the tokens, since an engine's may lag behind.
type transcript struct {
	gateway *Gateway
	// dialect has the tokens that frame calls; nil for none.
	dialect *calls.Dialect
	// reading: the engine gives no text. begun: it has given some.
	reading, begun bool
	// broken: it gives some of which the place among the tokens is lost, so that they are read.
	broken bool
	// text is all that was said; cut the beginning of a character that has not come whole.
	text []byte
	cut  []byte
	// tokens, and the places from which they are read: what stands before read was said, from context
	// on it is read again, since a token's text can depend on those before it.
	tokens        []int32
	context, read int
	// marked counts the tokens that were looked through. said is how much of text was handed on. The tokens
	// from segment on, behind the last that is a word of the frame, have their text from begins on.
	marked, said, segment, begins int
	parts                         []part
}

// add returns what a piece has brought.
func (t *transcript) add(ctx context.Context, p *piece) ([]part, error) {
	t.parts = t.parts[:0]
	t.tokens = append(t.tokens, p.tokens...)
	if t.broken {
		return t.parts, t.readAll(ctx, false)
	}
	if len(p.text) > 0 && len(t.text) == 0 { // the engine gives text after all
		if t.marked > 0 && t.reading {
			shown, err := t.decode(ctx, t.tokens[:t.marked])
			if err != nil {
				return nil, err
			}
			t.segment, t.begins, t.said = t.marked, len(shown), len(shown)
		}
		t.reading, t.begun = false, true
		t.gateway.textless.Store(false)
	}
	if !t.begun && !t.reading {
		t.reading = t.gateway.textless.Load() || len(t.tokens) > textlessTokens
	}
	if t.reading {
		return t.parts, t.readAll(ctx, false)
	}
	t.append(t.whole(p.text))
	if !t.begun { // tokens have come and no text yet
		return t.parts, nil
	}
	return t.parts, t.hand(ctx, false)
}

// hand hands on the engine's text, and the tokens between it that frame calls.
func (t *transcript) hand(ctx context.Context, last bool) error {
	for ; t.marked < len(t.tokens); t.marked++ {
		if !t.dialect.Marks(t.tokens[t.marked]) {
			continue
		}
		if err := t.upTo(ctx, t.marked); err != nil {
			return err
		}
		if t.broken {
			return t.readAll(ctx, last)
		}
	}
	if t.said < len(t.text) {
		t.parts = append(t.parts, part{text: t.text[t.said:]})
		t.said = len(t.text)
	}
	return nil
}

// upTo hands on the text before a token that frames calls, and the token. An engine may show its text, and
// none of the tokens that it takes for special ones.
func (t *transcript) upTo(ctx context.Context, at int) error {
	before, err := t.decode(ctx, t.tokens[t.segment:at])
	if err != nil {
		return err
	}
	shown, err := t.gateway.templates.shown(ctx, t.tokens[at])
	if err != nil {
		return rendering(err, "reading the text of tokens")
	}
	said := string(t.text[min(t.begins, t.said, len(t.text)):min(t.said, len(t.text))])
	broken := strings.Contains(before, "\uFFFD")
	if !strings.HasPrefix(before, said) && !broken { // a text can depend on the tokens before it
		all, err := t.decode(ctx, t.tokens[:at])
		if err != nil {
			return err
		}
		said, broken = string(t.text[:min(t.said, len(t.text))]), !strings.HasPrefix(all, string(t.text[:min(t.said, len(t.text))]))
		t.begins, before = 0, all
	}
	if rest := beyond(before, said); rest != "" {
		t.parts = append(t.parts, part{text: []byte(rest)})
	}
	t.parts = append(t.parts, part{mark: t.tokens[at]})
	t.begins += len(before) + len(shown)
	t.said, t.segment = t.begins, at+1
	if broken { // a character never came whole: where the engine's text goes on cannot be told
		t.reading, t.broken = true, true
		t.context, t.read, t.marked = at+1, at+1, at+1
	}
	return nil
}

// beyond is what a text has behind its beginning, where the two may mark broken characters differently.
func beyond(text, beginning string) string {
	if rest, ok := strings.CutPrefix(text, beginning); ok {
		return rest
	}
	left := utf8.RuneCountInString(beginning) - strings.Count(beginning, "\uFFFD")
	for i, r := range text {
		if left <= 0 {
			return text[i:]
		}
		if r != utf8.RuneError {
			left--
		}
	}
	return ""
}

func (t *transcript) decode(ctx context.Context, tokens []int32) (string, error) {
	if len(tokens) == 0 {
		return "", nil
	}
	text, err := t.gateway.templates.Decode(ctx, tokens)
	return text, rendering(err, "reading the text of tokens")
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

func (t *transcript) append(text []byte) { t.text = append(t.text, text...) }

// readAll reads the tokens that were not read yet, and hands on those that frame calls.
func (t *transcript) readAll(ctx context.Context, last bool) error {
	for ; t.marked < len(t.tokens); t.marked++ {
		if !t.dialect.Marks(t.tokens[t.marked]) {
			continue
		}
		if err := t.readOn(ctx, t.marked, true); err != nil {
			return err
		}
		t.parts = append(t.parts, part{mark: t.tokens[t.marked]})
		t.context, t.read = t.marked+1, t.marked+1
	}
	return t.readOn(ctx, len(t.tokens), last)
}

// readOn reads tokens up to an end. A character that is not complete reads as a replacement mark and
// waits for the tokens that complete it, unless these are the last.
func (t *transcript) readOn(ctx context.Context, end int, last bool) error {
	if t.gateway.templates == nil || t.read == end {
		return nil
	}
	before, err := t.decode(ctx, t.tokens[t.context:t.read])
	if err != nil {
		return err
	}
	now, err := t.decode(ctx, t.tokens[t.context:end])
	if err != nil {
		return err
	}
	if !last && (len(now) <= len(before) || strings.HasSuffix(now, "\uFFFD")) {
		return nil
	}
	t.context, t.read = t.read, end
	if len(now) > len(before) {
		t.append([]byte(now[len(before):]))
		t.parts = append(t.parts, part{text: []byte(now[len(before):])})
	}
	return nil
}

// finish returns what the end of the response has brought beyond its pieces.
func (t *transcript) finish(ctx context.Context, reply *protocol.TurnReply) ([]part, error) {
	t.parts = t.parts[:0]
	if !t.begun && reply.Text == "" && len(reply.Tokens) > 0 {
		t.reading = true
	}
	if n := len(t.tokens); len(reply.Tokens) > n {
		t.tokens = append(t.tokens, reply.Tokens[n:]...)
	}
	if t.reading {
		err := t.readAll(ctx, true)
		if len(t.text) > 0 && reply.Text == "" { // else the tokens may all be special ones
			t.gateway.textless.Store(true)
		}
		return t.parts, err
	}
	if err := t.rest(ctx, reply); err != nil {
		return nil, err
	}
	return t.parts, t.hand(ctx, true)
}

// rest adds what an engine's own text has beyond the pieces. One that says none in the end has
// lost some of it, as it may where a response goes on at another: only the tokens have all of it then.
func (t *transcript) rest(ctx context.Context, reply *protocol.TurnReply) error {
	all := reply.Text
	if all == "" && len(reply.Tokens) > 0 {
		if t.gateway.templates == nil {
			t.append(t.cut)
			return nil
		}
		var err error
		if all, err = t.decode(ctx, reply.Tokens); err != nil {
			return err
		}
	}
	rest, ok := strings.CutPrefix(all, string(t.text))
	if !ok { // what was sent cannot be taken back, and nothing makes it right
		return lostPiece()
	}
	t.append([]byte(rest))
	return nil
}

func lostPiece() error {
	return protocol.Refuse(protocol.CodeUnavailable, "a piece was lost on its way, and the sent text is not the beginning")
}
