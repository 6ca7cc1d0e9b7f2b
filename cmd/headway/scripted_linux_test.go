package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
)

// Tokens of a scripted server: a byte each, and one that ends a message.
const (
	scriptedVocabulary = 260
	scriptedEnd        = 256
	scriptedContext    = 4096
	// assistantTurn begins a message of the policy in a rendered chat, toolTurn what a tool has answered.
	assistantTurn = "\n[assistant]"
	toolTurn      = "\n[tool]"
)

// scriptedServer is a vLLM whose model says what a script makes of the whole chat so far, of which
// weights it serves. All but what it says is enginetest's.
func scriptedServer(t *testing.T, script func(r *http.Request, chat string) string) string {
	t.Helper()
	url, _ := scriptedPolicy(t, script)
	return url
}

// scriptedPolicy is a scriptedServer, with what is behind it.
func scriptedPolicy(t *testing.T, script func(r *http.Request, chat string) string) (string, *enginetest.PolicyServer) {
	t.Helper()
	policy := newScriptedPolicy()
	t.Cleanup(policy.Close)
	front := httptest.NewServer(scriptedFront(policy, script))
	t.Cleanup(front.Close)
	return front.URL, policy
}

// newScriptedPolicy is what is behind a scripted server.
func newScriptedPolicy() *enginetest.PolicyServer {
	return enginetest.NewPolicyServer(enginetest.PolicyOptions{
		Policy: enginetest.Policy{Vocabulary: scriptedVocabulary, EOS: scriptedEnd, Length: 12}, Context: scriptedContext, Weights: "as started", Named: versionOfView})
}

// scriptedFront is a scripted server in front of a policy.
func scriptedFront(policy *enginetest.PolicyServer, script func(r *http.Request, chat string) string) http.Handler {
	behind, err := url.Parse(policy.URL())
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tokenize", scriptedTokens)
	mux.HandleFunc("POST /detokenize", scriptedText)
	proxy := httputil.NewSingleHostReverseProxy(behind)
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { scriptedCompletion(proxy, script, w, r) })
	mux.Handle("/", proxy)
	return mux
}

// scriptedModel is its model's directory.
func scriptedModel(t *testing.T) string {
	t.Helper()
	dir := tinyModel(t, scriptedVocabulary)
	text := fmt.Appendf(nil, `{"vocab_size": %d, "max_position_embeddings": %d}`, scriptedVocabulary, scriptedContext)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func bytesAsTokens(text string) []int32 {
	tokens := make([]int32, 0, len(text))
	for _, b := range []byte(text) {
		if b == 0 {
			tokens = append(tokens, scriptedEnd)
		} else {
			tokens = append(tokens, int32(b))
		}
	}
	return tokens
}

// tokensAsBytes is the text of tokens; a message's end is a NUL.
func tokensAsBytes(tokens []int32) string {
	text := make([]byte, len(tokens))
	for i, token := range tokens {
		if token < scriptedEnd {
			text[i] = byte(token)
		}
	}
	return string(text)
}

// scriptedTokens answers /tokenize: of a text, or of a chat under the model's template, which names its tools
// at the end of its first message.
func scriptedTokens(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Prompt   string
		Messages []struct {
			Role, Content string
			Calls         []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Tools []struct {
			Function struct{ Name string }
		}
		Generation bool `json:"add_generation_prompt"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text := body.Prompt
	for i, m := range body.Messages {
		text += "\n[" + m.Role + "]" + m.Content
		for _, tool := range body.Tools {
			if i == 0 {
				text += " <" + tool.Function.Name + ">"
			}
		}
		for _, c := range m.Calls {
			text += toolCallText(c.Function.Name, c.Function.Arguments)
		}
		text += "\x00"
	}
	if body.Generation {
		text += assistantTurn
	}
	tokens := bytesAsTokens(text)
	_ = json.NewEncoder(w).Encode(map[string]any{"tokens": tokens, "count": len(tokens), "max_model_len": scriptedContext})
}

func scriptedText(w http.ResponseWriter, r *http.Request) {
	var body struct{ Tokens []int32 }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"prompt": tokensAsBytes(body.Tokens)})
}

// toolCallText is a call as the model writes it.
func toolCallText(name, arguments string) string {
	return fmt.Sprintf("<tool_call>{\"name\": %q, \"arguments\": %s}</tool_call>", name, arguments)
}

// scriptedCompletion streams what the script says, in one event; what is no stream is a probe.
func scriptedCompletion(probe http.Handler, script func(*http.Request, string) string, w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	var request struct {
		ID     string  `json:"request_id"`
		Prompt []int32 `json:"prompt"`
		Stream bool    `json:"stream"`
		Most   int     `json:"max_tokens"`
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	chat := tokensAsBytes(request.Prompt)
	if err != nil || !request.Stream || !strings.HasSuffix(chat, assistantTurn) {
		r.Body, r.ContentLength = http.NoBody, 0
		forward, _ := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), strings.NewReader(string(body)))
		forward.Header = r.Header.Clone()
		probe.ServeHTTP(w, forward)
		return
	}
	tokens := bytesAsTokens(script(r, chat) + "\x00")
	finish := "stop"
	if len(tokens) > request.Most {
		tokens, finish = tokens[:request.Most], "length"
	}
	choice := map[string]any{"index": 0, "text": strings.TrimSuffix(tokensAsBytes(tokens), "\x00"), "finish_reason": finish, "stop_reason": nil,
		"logprobs": map[string]any{"text_offset": []int{0}, "token_logprobs": make([]float32, len(tokens)), "tokens": []string{""}}, "token_ids": tokens, "prompt_token_ids": request.Prompt}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, choices := range [][]any{{choice}, {}} {
		text, _ := json.Marshal(map[string]any{"id": "cmpl-" + request.ID, "object": "text_completion", "created": 0, "model": "policy", "choices": choices})
		fmt.Fprintf(w, "data: %s\n\n", text)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
