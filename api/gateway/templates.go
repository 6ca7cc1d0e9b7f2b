package gateway

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"sync"
)

// templates renders chats once: the rollouts of a group begin with the same chat, and every turn
// asks for what the turn before has rendered.
type templates struct {
	Templates
	tokensMax int
	pictures  *pictures

	mu       sync.Mutex
	rendered map[renderKey]*list.Element
	// recent has the renderings, the latest used first.
	recent *list.List
	tokens int

	// words are the texts of tokens that frame calls, as engines show them.
	words sync.Map
}

type renderKey [sha256.Size]byte

// chatRendering is one chat's tokens, or those on their way.
type chatRendering struct {
	key    renderKey
	done   chan struct{}
	tokens []int32
	err    error
}

// renderingOverhead is counted for every rendering beside its tokens, as so many.
const renderingOverhead = 64

func newTemplates(t Templates, tokensMax int, p *pictures) *templates {
	return &templates{Templates: t, tokensMax: tokensMax, pictures: p, rendered: make(map[renderKey]*list.Element), recent: list.New()}
}

// chat renders messages. The tokens are shared: nobody may change them.
func (t *templates) chat(ctx context.Context, messages []json.RawMessage, tools []byte, generation bool) ([]int32, error) {
	text := joinMessages(messages)
	key := keyOf(text, tools, generation)
	for {
		c, mine := t.begin(key)
		if mine {
			c.tokens, c.err = t.Render(ctx, t.pictures.spelled(text), tools, generation)
			c.tokens = slices.Clip(c.tokens)
			t.end(c)
			return c.tokens, rendering(c.err, "rendering the chat")
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !errors.Is(c.err, context.Canceled) { // else the one who rendered has left
			return c.tokens, rendering(c.err, "rendering the chat")
		}
	}
}

// shown is the text of one token that frames calls: empty where engines leave it out.
func (t *templates) shown(ctx context.Context, token int32) (string, error) {
	if text, ok := t.words.Load(token); ok {
		return text.(string), nil
	}
	text, err := t.Decode(ctx, []int32{token})
	if err == nil {
		t.words.Store(token, text)
	}
	return text, err
}

func joinMessages(messages []json.RawMessage) []byte {
	size := 2
	for _, m := range messages {
		size += len(m) + 1
	}
	text := append(make([]byte, 0, size), '[')
	for i, m := range messages {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, m...)
	}
	return append(text, ']')
}

func keyOf(messages, tools []byte, generation bool) renderKey {
	hash := sha256.New()
	last := byte(0)
	if generation {
		last = 1
	}
	hash.Write([]byte{last})
	inner := sha256.Sum256(messages)
	hash.Write(inner[:])
	hash.Write(tools)
	var key renderKey
	hash.Sum(key[:0])
	return key
}

// begin returns a rendering, and whether the caller is to make it.
func (t *templates) begin(key renderKey) (c *chatRendering, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.rendered[key]; ok {
		t.recent.MoveToFront(e)
		return e.Value.(*chatRendering), false
	}
	c = &chatRendering{key: key, done: make(chan struct{})}
	t.rendered[key] = t.recent.PushFront(c)
	t.tokens += renderingOverhead
	return c, true
}

// end keeps a rendering that succeeded, and forgets the oldest past the bound.
func (t *templates) end(c *chatRendering) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(c.done)
	e, kept := t.rendered[c.key]
	kept = kept && e.Value.(*chatRendering) == c
	if kept && c.err != nil {
		t.remove(e, 0)
	} else if kept {
		t.tokens += len(c.tokens)
	}
	for e := t.recent.Back(); e != nil && t.tokens > t.tokensMax; {
		older := e.Prev()
		if other := e.Value.(*chatRendering); other == c || isClosed(other.done) {
			t.remove(e, len(other.tokens))
		}
		e = older
	}
}

func (t *templates) remove(e *list.Element, tokens int) {
	t.recent.Remove(e)
	delete(t.rendered, e.Value.(*chatRendering).key)
	t.tokens -= tokens + renderingOverhead
}

// closing are the tokens that end an assistant's message: what two chats have in common at their
// ends that differ in what it says. The two texts share no character.
func (t *templates) closing(ctx context.Context) ([]int32, error) {
	var ends [2][]int32
	for i, content := range []string{"x", "7"} {
		chat := []json.RawMessage{json.RawMessage(`{"role":"user","content":"1"}`), json.RawMessage(`{"role":"assistant","content":"` + content + `"}`)}
		tokens, err := t.chat(ctx, chat, nil, false)
		if err != nil {
			return nil, err
		}
		ends[i] = tokens
	}
	n := 0
	for n < min(len(ends[0]), len(ends[1])) && ends[0][len(ends[0])-1-n] == ends[1][len(ends[1])-1-n] {
		n++
	}
	if n == len(ends[0]) || n == len(ends[1]) {
		return nil, errNotExtendable // the content does not show: this template says nothing of an end
	}
	return ends[0][len(ends[0])-n:], nil
}
