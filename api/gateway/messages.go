package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"strconv"
)

// historyKey stands for a chat up to one of its messages, tools included: two chats have the same
// key where they say the same, however it is spelled.
type historyKey [sha256.Size]byte

// next is the key of the chat with one message more.
func (k historyKey) next(message []byte) historyKey {
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(message)))
	hash := sha256.New()
	hash.Write(k[:])
	hash.Write(size[:])
	hash.Write(message)
	var next historyKey
	hash.Sum(next[:0])
	return next
}

// call names the n-th call of a tool behind a history. A response that is told again has its calls by the same names.
func (k historyKey) call(n int) string {
	key := k.next(strconv.AppendInt(nil, int64(n), 10))
	return "call_" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(key[:16])
}

// tokensKey stands for a prompt of tokens.
func tokensKey(tokens []int32) historyKey {
	text := make([]byte, 0, 4*len(tokens))
	for _, id := range tokens {
		text = binary.LittleEndian.AppendUint32(text, uint32(id))
	}
	return historyKey{}.next(text)
}

// histories are the keys of a chat after each of its messages; the first is of none.
func histories(req *request) []historyKey {
	keys := make([]historyKey, 1, len(req.messages)+1)
	if req.tools != nil {
		keys[0] = historyKey{}.next(canonical(req.tools))
	}
	for i, message := range req.messages {
		keys = append(keys, keys[i].next(canonicalMessage(message)))
	}
	return keys
}

// canonical is JSON with its keys in order and nothing between them. What is no JSON stays as it is.
func canonical(raw []byte) []byte {
	value, err := decodeAny(raw)
	if err != nil {
		return raw
	}
	text, err := json.Marshal(value)
	if err != nil {
		return raw
	}
	return text
}

func decodeAny(raw []byte) (any, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // 1 and 1.0 are rendered differently, and large ids keep their digits
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errTrailing
	}
	return value, nil
}

// canonicalMessage is a message in the one form by which it is recognised: clients send back what
// they were told with fields left out, set to null, or in another order.
func canonicalMessage(raw []byte) []byte {
	value, err := decodeAny(raw)
	message, ok := value.(map[string]any)
	if err != nil || !ok {
		return raw
	}
	dropEmpty(message)
	if parts, ok := message["content"].([]any); ok && len(parts) == 1 {
		if part, ok := parts[0].(map[string]any); ok && part["type"] == "text" && len(part) == 2 {
			if text, ok := part["text"].(string); ok {
				message["content"] = text
			}
		}
	}
	if message["role"] == "assistant" {
		for _, name := range reasoningFields {
			delete(message, name)
		}
		if message["content"] == "" {
			delete(message, "content")
		}
		if calls, ok := message["tool_calls"].([]any); ok {
			for _, call := range calls {
				canonicalCall(call)
			}
		}
	}
	text, err := json.Marshal(message)
	if err != nil {
		return raw
	}
	return text
}

// reasoningFields are those in which clients send back what the policy has thought. Some leave it out, so
// that a message is recognised without it.
var reasoningFields = []string{"reasoning_content", "reasoning"}

// reasoningOf is what a message says that the policy has thought, empty for nothing.
func reasoningOf(raw json.RawMessage) string {
	if !bytes.Contains(raw, []byte(`"reasoning`)) {
		return ""
	}
	var message map[string]json.RawMessage
	if json.Unmarshal(raw, &message) != nil {
		return ""
	}
	for _, name := range reasoningFields {
		var text string
		if json.Unmarshal(message[name], &text) == nil && text != "" {
			return text
		}
	}
	return ""
}

// withThought is an answer that says what the policy has thought at the beginning of its content, and
// nowhere else.
func withThought(raw json.RawMessage, thought string) json.RawMessage {
	if thought == "" && !bytes.Contains(raw, []byte(`"reasoning`)) {
		return raw
	}
	var message map[string]json.RawMessage
	if json.Unmarshal(raw, &message) != nil {
		return raw
	}
	for _, name := range reasoningFields {
		delete(message, name)
	}
	var content string
	if json.Unmarshal(message["content"], &content) == nil || !given(message["content"]) {
		if text, err := json.Marshal(thought + content); err == nil && thought != "" {
			message["content"] = text
		}
	}
	text, err := json.Marshal(message)
	if err != nil {
		return raw
	}
	return text
}

// dropEmpty removes what says as much as if it were not there.
func dropEmpty(object map[string]any) {
	for name, value := range object {
		list, isList := value.([]any)
		if value == nil || isList && len(list) == 0 {
			delete(object, name)
		}
	}
}

// withoutEmpty is a message without the fields that are null or empty lists, its content apart:
// libraries send back every field they know, and templates ask whether one is there.
func withoutEmpty(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte("null")) && !bytes.Contains(raw, []byte("[")) {
		return raw
	}
	var message map[string]json.RawMessage
	if json.Unmarshal(raw, &message) != nil {
		return raw
	}
	dropped := false
	for name, value := range message {
		var list []json.RawMessage
		if name != "content" && json.Unmarshal(value, &list) == nil && len(list) == 0 { // null, too, is a list of none
			delete(message, name)
			dropped = true
		}
	}
	if !dropped {
		return raw
	}
	text, err := json.Marshal(message)
	if err != nil {
		return raw
	}
	return text
}

// canonicalCall puts one call of a tool into its form. Clients that gather a stream keep its index,
// some read the arguments and write them anew.
func canonicalCall(value any) {
	call, ok := value.(map[string]any)
	if !ok {
		return
	}
	dropEmpty(call)
	delete(call, "index")
	if call["type"] == nil {
		call["type"] = "function"
	}
	function, ok := call["function"].(map[string]any)
	if !ok {
		return
	}
	dropEmpty(function)
	switch arguments := function["arguments"].(type) {
	case string:
		function["arguments"] = string(canonical([]byte(arguments)))
	case map[string]any:
		if text, err := json.Marshal(arguments); err == nil {
			function["arguments"] = string(text)
		}
	}
}

// toolCall is a call of a tool that stood in a response.
type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function calledByName `json:"function"`
	// broken: it turned out to be none once its beginning was said.
	broken bool
}

type calledByName struct {
	Name string `json:"name"`
	// Arguments is the text of a JSON object, as the policy wrote it.
	Arguments string `json:"arguments"`
}

// answer is the assistant's message of a response.
type answer struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// newAnswer makes a response's message; without text beside its calls, the content is null.
func newAnswer(text string, calls []toolCall) answer {
	a := answer{Role: "assistant", ToolCalls: calls}
	if text != "" || len(calls) == 0 {
		a.Content = &text
	}
	return a
}
