package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/headway-rl/headway/api/protocol"
)

// Ids of the reference template engine. Every byte is a token, so that characters are cut between
// tokens, and so is every pair of small letters: a text has many spellings in tokens, of which
// encode gives one.
const (
	imStart int32 = 1
	imEnd   int32 = 2
	endText int32 = 3
	byteIDs int32 = 10
	pairIDs int32 = 300
	// shownIDs are words of a frame that engines show in their text, one token each.
	shownIDs int32 = 1000
)

var shownWords = []string{"<tool_call>", "</tool_call>", "<think>", "</think>"}

func isSmall(c byte) bool { return c >= 'a' && c <= 'z' }

func encode(text string) []int32 {
	var ids []int32
	for i := 0; i < len(text); i++ {
		if i+1 < len(text) && isSmall(text[i]) && isSmall(text[i+1]) {
			ids = append(ids, pairIDs+26*int32(text[i]-'a')+int32(text[i+1]-'a'))
			i++
			continue
		}
		ids = append(ids, byteIDs+int32(text[i]))
	}
	return ids
}

// spell gives the tokens of a text in the spelling that encode never chooses: byte by byte.
func spell(text string) []int32 {
	var ids []int32
	for _, c := range []byte(text) {
		ids = append(ids, byteIDs+int32(c))
	}
	return ids
}

func decodeIDs(ids []int32) string {
	var text []byte
	for _, id := range ids {
		switch {
		case id >= shownIDs:
			text = append(text, shownWords[id-shownIDs]...)
		case id >= pairIDs:
			text = append(text, byte('a'+(id-pairIDs)/26), byte('a'+(id-pairIDs)%26))
		case id >= byteIDs:
			text = append(text, byte(id-byteIDs))
		}
	}
	return strings.ToValidUTF8(string(text), string(utf8.RuneError))
}

// reference renders chats like ChatML, with a little of what real templates do beside.
type reference struct {
	// rendering, if not nil, is called by each render.
	rendering func()
	// forgetful leaves out the thinking of earlier answers.
	forgetful bool
	// blank puts an empty block of thinking before the last answer that has none, as long as no user
	// has spoken after it, and leaves out the thinking of earlier ones.
	blank bool
	// mute renders no message that ends in the assistant's, as templates do that ask for alternation.
	mute bool
	// day is said at the beginning of every chat, if not empty.
	day string
	// counts says at the beginning how many messages there are, at most nine.
	counts bool
	// trims leaves out the space around what is said.
	trims bool
	// toolless says nothing of tools, shy only where a system's message begins the chat, and strict
	// renders no chat without them.
	toolless, shy, strict bool
	// bareFails is returned where a prompt is rendered without tools, if not nil.
	bareFails error
	// fails is returned by every call, if not nil.
	fails error

	mu    sync.Mutex
	calls map[string]int
	// last are the messages that were rendered last.
	last string
}

func (t *reference) count(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = make(map[string]int)
	}
	t.calls[what]++
}

func (t *reference) called(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls[what]
}

type referenceMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		Function struct {
			Name string
			// Arguments are a text or, from clients that read them, an object.
			Arguments json.RawMessage
		}
	} `json:"tool_calls"`
}

func (m referenceMessage) text() string {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(m.Content, &parts)
	for _, part := range parts {
		text += part.Text
	}
	return text
}

// renderOne renders a message that stands by itself.
func renderOne(m referenceMessage, content string) []int32 {
	ids := append([]int32{imStart}, encode(m.Role+"\n"+content)...)
	for _, call := range m.ToolCalls {
		arguments := string(call.Function.Arguments)
		_ = json.Unmarshal(call.Function.Arguments, &arguments)
		// Reformatted on purpose: templates write calls in their own way.
		ids = append(ids, encode(fmt.Sprintf("\n<tool_call>\n{%q: %q, %q: %s}\n</tool_call>", "name", call.Function.Name, "arguments", canonical([]byte(arguments))))...)
	}
	ids = append(ids, imEnd)
	return append(ids, encode("\n")...)
}

var opening = append([]int32{imStart}, encode("assistant\n")...)

func (t *reference) Render(ctx context.Context, messages, tools []byte, generation bool) ([]int32, error) {
	t.count("render")
	if t.rendering != nil {
		t.rendering()
	}
	t.mu.Lock()
	t.last = string(messages)
	t.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.fails != nil {
		return nil, t.fails
	}
	var chat []referenceMessage
	if err := json.Unmarshal(messages, &chat); err != nil {
		return nil, protocol.Refuse(protocol.CodeInvalid, "no chat")
	}
	lastUser := -1
	for i, m := range chat {
		if m.Role == "user" {
			lastUser = i
		}
	}
	var ids []int32
	if tools == nil && generation {
		t.count("bare")
		if t.bareFails != nil {
			return nil, t.bareFails
		}
	}
	if t.strict && tools == nil {
		return nil, protocol.Refuse(protocol.CodeInvalid, "there are no tools")
	}
	if tools != nil && !t.toolless && !(t.shy && chat[0].Role != "system") {
		ids = append(ids, renderOne(referenceMessage{Role: "system"}, "tools: "+string(canonical(tools)))...)
	}
	if t.day != "" {
		ids = append(ids, renderOne(referenceMessage{Role: "system"}, "today is "+t.day)...)
	}
	if t.counts {
		ids = append(ids, renderOne(referenceMessage{Role: "system"}, fmt.Sprint(min(len(chat), 9)))...)
	}
	for i, m := range chat {
		content := m.text()
		if t.trims {
			content = strings.TrimSpace(content)
		}
		if t.blank && m.Role == "assistant" && i > lastUser && !strings.Contains(content, "</think>") {
			content = "<think></think>" + content
		}
		if _, after, ok := strings.Cut(content, "</think>"); ok && (t.forgetful || t.blank) && m.Role == "assistant" && i < lastUser {
			content = after
		}
		ids = append(ids, renderOne(m, content)...)
	}
	if t.mute && !generation && chat[len(chat)-1].Role == "assistant" {
		return nil, protocol.Refuse(protocol.CodeInvalid, "roles must alternate")
	}
	if generation {
		ids = append(ids, opening...)
	}
	return ids, nil
}

func (t *reference) Encode(_ context.Context, text string) ([]int32, error) {
	t.count("encode")
	return encode(text), t.fails
}

func (t *reference) Decode(ctx context.Context, ids []int32) (string, error) {
	t.count("decode")
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return decodeIDs(ids), t.fails
}
