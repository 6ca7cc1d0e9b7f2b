package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/loop/media"
)

// chatBody is the body of POST /v1/chat/completions.
type chatBody struct {
	body
	Messages    []json.RawMessage `json:"messages"`
	Tools       []json.RawMessage `json:"tools"`
	ToolChoice  json.RawMessage   `json:"tool_choice"`
	Logprobs    bool              `json:"logprobs"`
	TopLogprobs *int              `json:"top_logprobs"`
	// IncludeReasoning false leaves reasoning_content out of the answer, and no token.
	IncludeReasoning *bool `json:"include_reasoning"`
	// Fields that would change what is rendered or sampled, and are refused.
	Functions            json.RawMessage `json:"functions"`
	FunctionCall         json.RawMessage `json:"function_call"`
	ChatTemplate         json.RawMessage `json:"chat_template"`
	ChatTemplateArgs     json.RawMessage `json:"chat_template_kwargs"`
	ContinueFinalMessage bool            `json:"continue_final_message"`
	AddGenerationPrompt  *bool           `json:"add_generation_prompt"`
	TruncatePrompt       json.RawMessage `json:"truncate_prompt_tokens"`
	Documents            json.RawMessage `json:"documents"`
	ProcessorArgs        json.RawMessage `json:"mm_processor_kwargs"`
	MediaArgs            json.RawMessage `json:"media_io_kwargs"`
	// Wishes that the policy is not told of. They are named.
	ParallelCalls   *bool           `json:"parallel_tool_calls"`
	ReasoningEffort json.RawMessage `json:"reasoning_effort"`
}

func decodeChat(r *http.Request, options Options) (*request, error) {
	var b chatBody
	if err := decode(r, &b, options); err != nil {
		return nil, err
	}
	req := &request{chat: true, messages: b.Messages, logprobs: b.Logprobs, hidden: b.IncludeReasoning != nil && !*b.IncludeReasoning}
	if err := b.shared(req, options); err != nil {
		return nil, err
	}
	if b.TopLogprobs != nil && *b.TopLogprobs != 0 {
		return nil, invalid("top_logprobs", "top_logprobs is %d: want 0. Only the log-probs of sampled tokens are known", *b.TopLogprobs)
	}
	if err := b.foreignChat(); err != nil {
		return nil, err
	}
	if len(b.Messages) == 0 {
		return nil, invalid("messages", "messages is empty: want at least one")
	}
	if err := req.readMessages(options); err != nil {
		return nil, err
	}
	if given(b.ReasoningEffort) {
		req.overridden = append(req.overridden, "reasoning_effort")
	}
	return req, b.readTools(req)
}

// foreignChat refuses what the template or the engine would have to be told.
func (b *chatBody) foreignChat() error {
	for _, f := range []struct {
		name  string
		given bool
		why   string
	}{
		{"functions", given(b.Functions), "use tools instead"},
		{"function_call", given(b.FunctionCall), "use tools instead"},
		{"chat_template", given(b.ChatTemplate), "the run's template is the server's that renders"},
		{"chat_template_kwargs", given(b.ChatTemplateArgs) && string(b.ChatTemplateArgs) != "{}", "give them to the server that renders, so that every chat of the run is rendered alike"},
		{"mm_processor_kwargs", given(b.ProcessorArgs) && string(b.ProcessorArgs) != "{}", "give it to the server, so that every image of the run is read alike"},
		{"media_io_kwargs", given(b.MediaArgs) && string(b.MediaArgs) != "{}", "give it to the server, so that every image of the run is read alike"},
		{"continue_final_message", b.ContinueFinalMessage, "a response is always a message of its own"},
		{"add_generation_prompt", b.AddGenerationPrompt != nil && !*b.AddGenerationPrompt, "a response is always a message of its own"},
		{"truncate_prompt_tokens", given(b.TruncatePrompt), "shorten the history, so that the policy is trained on the text that it saw"},
		{"documents", given(b.Documents) && string(b.Documents) != "[]", "put them into a message"},
	} {
		if f.given {
			return invalid(f.name, "%s is not supported: %s", f.name, f.why)
		}
	}
	return nil
}

// readMessages checks the messages and takes their media out of them.
func (req *request) readMessages(options Options) error {
	count := 0
	for i, raw := range req.messages {
		parts, err := checkMessage(i, raw)
		if err != nil {
			return err
		}
		if parts {
			var items []media.Item
			if raw, items, err = req.checkParts(i, raw, options); err != nil {
				return err
			}
			if count += len(items); count > mediaMax {
				return invalid(fmt.Sprintf("messages[%d].content", i), "the chat has more than %d images up to messages[%d]", mediaMax, i)
			}
			if len(items) > 0 && req.media == nil {
				req.media = make([][]media.Item, len(req.messages))
			}
			if len(items) > 0 {
				req.media[i] = items
			}
		}
		req.messages[i] = withoutEmpty(raw)
	}
	return nil
}

// checkMessage refuses a message that no template can read, and reports whether its content is in parts. What else it
// holds is the template's.
func checkMessage(i int, raw json.RawMessage) (parts bool, err error) {
	var m struct {
		Role    *string         `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	at := fmt.Sprintf("messages[%d]", i)
	if err := json.Unmarshal(raw, &m); err != nil || string(raw) == "null" {
		return false, invalid(at, "%s is no object with a role and content", at)
	}
	if m.Role == nil || *m.Role == "" {
		return false, invalid(at+".role", "%s has no role: want system, user, assistant or tool", at)
	}
	if !given(m.Content) && *m.Role == "user" {
		return false, invalid(at+".content", "%s has no content: want a text or a list of parts", at)
	}
	return given(m.Content) && m.Content[0] != '"', nil
}

// readTools reads the tools. A tool's own word that calls of it be strict is named among what the run's
// sampling took the place of: to heed it a grammar would have to choose tokens in the policy's place.
func (b *chatBody) readTools(req *request) error {
	choice := "auto"
	if given(b.ToolChoice) && (json.Unmarshal(b.ToolChoice, &choice) != nil || choice != "auto" && choice != "none") {
		return invalid("tool_choice", "tool_choice can be auto or none: a call cannot be forced, the policy is sampled as it is")
	}
	if len(b.Tools) == 0 {
		return nil
	}
	req.offered = make(calls.Tools, len(b.Tools))
	strict := false
	for i, raw := range b.Tools {
		var tool struct {
			Function struct {
				Name       string          `json:"name"`
				Strict     bool            `json:"strict"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		at := fmt.Sprintf("tools[%d]", i)
		if err := json.Unmarshal(raw, &tool); err != nil || tool.Function.Name == "" {
			return invalid(at, "%s is no function with a name", at)
		}
		req.offered[tool.Function.Name] = calls.ReadTool(tool.Function.Parameters)
		strict = strict || tool.Function.Strict
	}
	if strict {
		req.overridden = append(req.overridden, "tools.strict")
	}
	if b.ParallelCalls != nil && !*b.ParallelCalls {
		req.overridden = append(req.overridden, "parallel_tool_calls")
	}
	tools, err := json.Marshal(b.Tools)
	if err != nil {
		return invalid("tools", "tools cannot be read")
	}
	req.tools, req.callable = tools, choice == "auto"
	return nil
}
