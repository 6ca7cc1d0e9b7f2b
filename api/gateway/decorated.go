package gateway

import (
	"context"
	"encoding/json"
	"slices"
)

// decorated returns what follows the content of message n-1, the assistant's, in the rendering of a
// whole chat whose template puts something before that content only as long as it is the last one,
// such as an empty block of thinking. That is told by chats that differ in the content alone: what
// stands before it in the whole chat must begin what stood before it when it was sampled, and the
// content must be rendered the same in both. A template that leaves out thinking that was sampled
// renders the content otherwise: errNotExtendable.
func (t *templates) decorated(ctx context.Context, req *request, n int, before, whole []int32) ([]int32, error) {
	was, err := t.around(ctx, req, n, n, false)
	if err != nil {
		return nil, err
	}
	said, ok := was.content(before)
	if !ok {
		return nil, errNotExtendable
	}
	is, err := t.around(ctx, req, n, len(req.messages), true)
	if err != nil {
		return nil, err
	}
	again, same := is.content(whole)
	if !same || !slices.Equal(said, again) || len(is.head) > len(was.head) || !slices.Equal(is.head, was.head[:len(is.head)]) {
		return nil, errNotExtendable
	}
	return slices.Clone(is.tail), nil
}

// frame is what a rendering has before and after the content of one message.
type frame struct{ head, tail []int32 }

// content is what stands within the frame, false where the tokens do not have it.
func (f frame) content(tokens []int32) ([]int32, bool) {
	end := len(tokens) - len(f.tail)
	if end < len(f.head) || !slices.Equal(tokens[:len(f.head)], f.head) || !slices.Equal(tokens[end:], f.tail) {
		return nil, false
	}
	return tokens[len(f.head):end], true
}

// around is the frame of message n-1, the assistant's, in the chat of the first to messages. A
// message that has more than a content has none.
func (t *templates) around(ctx context.Context, req *request, n, to int, generation bool) (frame, error) {
	if !plainAnswer(req.messages[n-1]) {
		return frame{}, errNotExtendable
	}
	var both [2][]int32
	for i, content := range []string{"x", "7"} {
		chat := slices.Clone(req.messages[:to])
		chat[n-1] = json.RawMessage(`{"role":"assistant","content":"` + content + `"}`)
		tokens, err := t.chat(ctx, chat, req.tools, generation)
		if err != nil {
			return frame{}, err
		}
		both[i] = tokens
	}
	a, b := both[0], both[1]
	head, tail := 0, 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	if head+tail >= min(len(a), len(b)) {
		return frame{}, errNotExtendable // the content does not show
	}
	return frame{a[:head], a[len(a)-tail:]}, nil
}

// plainAnswer reports whether a message has a role and a text, and nothing else that is rendered.
func plainAnswer(raw json.RawMessage) bool {
	var message map[string]any
	if json.Unmarshal(raw, &message) != nil || message["role"] != "assistant" {
		return false
	}
	dropEmpty(message)
	_, text := message["content"].(string)
	return text && len(message) == 2
}
