package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

func decodeStrict(text []byte, to any) error { return json.Unmarshal(text, to) }

// What cannot be meant is refused with the name of the field, before anything is sampled.
func TestRefusedRequests(t *testing.T) {
	const chat, completion = "/v1/chat/completions", "/v1/completions"
	with := func(more string) string { return `{"messages":[{"role":"user","content":"x"}],` + more + `}` }
	prompt := func(more string) string { return `{"prompt":[1,2],` + more + `}` }
	for _, c := range []struct {
		path, body, field string
	}{
		{chat, ``, ""}, {chat, `[]`, ""}, {chat, `{`, ""}, {chat, `{} x`, ""}, {chat, `null`, ""},
		{chat, `{}`, "messages"}, {chat, `{"messages":[]}`, "messages"}, {chat, `{"messages":"x"}`, "messages"},
		{chat, `{"messages":[1]}`, "messages[0]"}, {chat, `{"messages":[null]}`, "messages[0]"},
		{chat, `{"messages":[{"content":"x"}]}`, "messages[0].role"},
		{chat, `{"messages":[{"role":"user","content":1}]}`, "messages[0].content"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "messages[0].content[0]"},
		{chat, `{"messages":[{"role":"user"}]}`, "messages[0].content"}, {chat, `{"messages":[{"role":"user","content":null}]}`, "messages[0].content"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text"}]}]}`, "messages[0].content[1].text"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"text","text":5}]}]}`, "messages[0].content[0].text"},
		{chat, with(`"stop_token_ids":[null]`), "stop_token_ids"}, {chat, with(`"stop_token_ids":5`), "stop_token_ids"}, {chat, with(`"stop_token_ids":[2147483648]`), "stop_token_ids"},
		{completion, `{"prompt":[0,null,4,null,1]}`, "prompt"}, {completion, `{"prompt":[null]}`, "prompt"}, {completion, `{"prompt":[[1,null]]}`, "prompt"},
		{completion, `{"prompt":[[]]}`, "prompt"}, {completion, `{"prompt":[[""]]}`, "prompt"}, {completion, `{"prompt":5}`, "prompt"}, {completion, `{"prompt":null}`, "prompt"},
		{completion, `{"prompt":[1,[2]]}`, "prompt"}, {completion, `{"prompt":[1e2]}`, "prompt"},
		{chat, with(`"n":0`), "n"}, {chat, with(`"n":1000`), "n"}, {chat, with(`"n":"2"`), "n"}, {chat, with(`"n":1.5`), "n"},
		{chat, with(`"temperature":"hot"`), "temperature"}, {chat, with(`"temperature":-1`), "temperature"},
		{chat, with(`"top_p":1.5`), "top_p"}, {chat, with(`"top_k":-2`), "top_k"}, {chat, with(`"min_p":2`), "min_p"},
		{chat, with(`"max_tokens":0`), "max_tokens"}, {chat, with(`"max_completion_tokens":-5`), "max_completion_tokens"},
		{chat, with(`"max_tokens":true`), "max_tokens"}, {chat, with(`"stream":"yes"`), "stream"},
		{chat, with(`"stream_options":{"include_usage":3}`), "stream_options.include_usage"},
		{chat, with(`"stop":5`), "stop"}, {chat, with(`"stop":[""]`), "stop"}, {chat, with(`"stop_token_ids":["a"]`), "stop_token_ids"},
		{chat, with(`"response_format":{"type":"json_object"}`), "response_format"},
		{chat, with(`"guided_json":{}`), "guided_json"}, {chat, with(`"structured_outputs":{"regex":"a"}`), "structured_outputs"},
		{chat, with(`"logprobs":1`), "logprobs"}, {chat, with(`"logprobs":true,"top_logprobs":5`), "top_logprobs"},
		{chat, with(`"tools":[{}]`), "tools[0]"}, {chat, with(`"tools":{}`), "tools"},
		{chat, with(`"tool_choice":"required"`), "tool_choice"}, {chat, with(`"tool_choice":{"type":"function"}`), "tool_choice"},
		{chat, with(`"functions":[{}]`), "functions"}, {chat, with(`"chat_template":"x"`), "chat_template"},
		{chat, with(`"chat_template_kwargs":{"enable_thinking":false}`), "chat_template_kwargs"},
		{chat, with(`"continue_final_message":true`), "continue_final_message"}, {chat, with(`"add_generation_prompt":false`), "add_generation_prompt"},
		{chat, with(`"truncate_prompt_tokens":9`), "truncate_prompt_tokens"}, {chat, with(`"regex":"a"`), "regex"}, {chat, with(`"ebnf":"a"`), "ebnf"},
		{chat, with(`"json_schema":"{}"`), "json_schema"}, {completion, prompt(`"structural_tag":"{}"`), "structural_tag"},
		{completion, `{}`, "prompt"}, {completion, `{"prompt":""}`, "prompt"}, {completion, `{"prompt":[]}`, "prompt"},
		{completion, `{"prompt":["a","b"]}`, "prompt"}, {completion, `{"prompt":[[1],[2]]}`, "prompt"}, {completion, `{"prompt":[-1]}`, "prompt"},
		{completion, `{"prompt":[1,"a"]}`, "prompt"}, {completion, `{"prompt":{}}`, "prompt"}, {completion, `{"prompt":[1.5]}`, "prompt"},
		{completion, `{"prompt":[99999999999]}`, "prompt"}, {completion, `{"prompt":[[[[1]]]]}`, ""},
		{completion, prompt(`"logprobs":2`), "logprobs"}, {completion, prompt(`"logprobs":true`), "logprobs"},
		{completion, prompt(`"echo":true`), "echo"}, {completion, prompt(`"best_of":2`), "best_of"}, {completion, prompt(`"suffix":"x"`), "suffix"},
	} {
		h := newHouse(t, always(says("abc")))
		w := h.post(c.path, c.body)
		if c.field == "" && w.Code == 200 {
			continue // a list of one list of one is one prompt
		}
		e := refusedAs(t, w)
		if w.Code != 400 || e.Type != "invalid_request_error" || e.Code != protocol.CodeInvalid || e.Message == "" {
			t.Errorf("%s: %d %+v", c.body, w.Code, e)
		}
		if c.field != "" && (e.Param == nil || *e.Param != c.field) {
			t.Errorf("%s: blames %v (%s), want %s", c.body, e.Param, e.Message, c.field)
		}
		if len(h.port.seen()) != 0 {
			t.Errorf("%s: sampled", c.body)
		}
	}
}

func refusedAs(t *testing.T, w *httptest.ResponseRecorder) protocol.CompletionError {
	t.Helper()
	var body struct{ Error protocol.CompletionError }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return body.Error
}

// What OpenAI's servers ignore or have other words for is taken.
func TestAcceptedRequests(t *testing.T) {
	for _, c := range []struct {
		path, body string
		check      func(r record) bool
	}{
		{"/v1/chat/completions", `"seed":3,"user":"u","metadata":{"a":1},"store":true,"foo":[1],"parallel_tool_calls":true,"reasoning_effort":"low"`, nil},
		{"/v1/chat/completions", `"n":null,"stop":null,"max_tokens":null,"temperature":null,"tools":null,"tool_choice":null,"stream":null,"response_format":null`, func(r record) bool { return r.req.MaxTokens == 0 && r.req.Sampling.Temperature == nil }},
		{"/v1/chat/completions", `"response_format":{"type":"text"},"top_logprobs":0,"logprobs":false,"tools":[],"chat_template_kwargs":{}`, nil},
		{"/v1/chat/completions", `"max_tokens":9,"max_completion_tokens":2`, func(r record) bool { return r.req.MaxTokens == 2 }},
		{"/v1/chat/completions", `"stop":"a"`, func(r record) bool { return slices.Equal(r.req.Sampling.Stop, []string{"a"}) }},
		{"/v1/chat/completions", `"stop":["a","b"],"stop_token_ids":[5]`, func(r record) bool { return len(r.req.Sampling.Stop) == 2 && r.req.Sampling.StopTokens[0] == 5 }},
		{"/v1/chat/completions", `"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1`, func(r record) bool {
			s := r.req.Sampling
			return *s.Temperature == 0.5 && *s.TopP == 0.9 && *s.TopK == 0 && *s.MinP == 0.1
		}},
		{"/v1/completions", `"prompt":"ab c"`, func(r record) bool { return slices.Equal(r.prompt, encode("ab c")) }},
		{"/v1/completions", `"prompt":["ab c"],"best_of":1,"echo":false,"logprobs":0`, func(r record) bool { return slices.Equal(r.prompt, encode("ab c")) }},
		{"/v1/completions", `"prompt":[[5,6]]`, func(r record) bool { return slices.Equal(r.prompt, []int32{5, 6}) }},
	} {
		body := "{" + c.body
		if strings.Contains(c.path, "chat") {
			body += `,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]`
		}
		h := newHouse(t, always(says("abc")))
		w := h.post(c.path, body+"}")
		if w.Code != 200 {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
			continue
		}
		if r := h.port.seen()[0]; c.check != nil && !c.check(r) {
			t.Errorf("%s: %+v", c.body, r.req)
		}
	}
}

// Templates ask whether a field is there: those that say nothing are left out, and nothing else.
func TestTemplateSeesNoEmptyFields(t *testing.T) {
	for sent, want := range map[string]string{
		`{"role":"assistant","content":"a","tool_calls":null,"audio":null,"refusal":null,"annotations":[]}`:        `{"content":"a","role":"assistant"}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"null"}}]}`: `{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"null"}}]}`,
		`{"role":"assistant","content":[]}`:                      `{"role":"assistant","content":[]}`,
		`{"role":"user", "content":"null [] \u0026 <x>", "a":1}`: `{"role":"user", "content":"null [] \u0026 <x>", "a":1}`,
	} {
		h := newHouse(t, always(says("abc")))
		if w := h.post("/v1/chat/completions", `{"messages":[`+sent+`]}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if h.template.last != "["+want+"]" {
			t.Errorf("%s\n was rendered as %s", sent, h.template.last)
		}
	}
}

// What the run's settings take the place of is named, or refused where the document says so.
func TestOverridden(t *testing.T) {
	r := says("abc")
	r.overridden = []string{"temperature"}
	h := newHouse(t, always(r))
	body := `{"messages":[{"role":"user","content":"x"}],"frequency_penalty":0.5,"presence_penalty":0,"logit_bias":{"5":1},"seed":4,"reasoning_effort":"low","bad_words":["a"],"allowed_token_ids":[],"use_beam_search":true}`
	w := h.post("/v1/chat/completions", body)
	if got := w.Header().Get(samplingHeader); w.Code != 200 || got != "temperature, frequency_penalty, logit_bias, allowed_token_ids, bad_words, use_beam_search, seed, reasoning_effort" || !strings.Contains(w.Body.String(), `"overridden":["temperature","frequency_penalty","logit_bias","allowed_token_ids","bad_words","use_beam_search","seed","reasoning_effort"]`) {
		t.Errorf("%d %q %s", w.Code, got, w.Body)
	}
	for _, mode := range []string{"refuse", "allow"} {
		h := newHouse(t, always(r), func(o *Options) { o.ClientSampling = mode })
		w := h.post("/v1/chat/completions", body)
		if e := refusedAs(t, w); w.Code != 400 || *e.Param != "frequency_penalty" {
			t.Errorf("%s: %d %s", mode, w.Code, w.Body)
		}
		w = h.post("/v1/completions", `{"prompt":[1],"seed":0}`)
		if w.Code != 200 || !strings.HasSuffix(w.Header().Get(samplingHeader), "seed") {
			t.Errorf("%s: a seed: %d %v %s", mode, w.Code, w.Header(), w.Body)
		}
	}
}

// A prompt over the context is refused with the word that agents look for; one below it gets the room.
func TestContext(t *testing.T) {
	h := newHouse(t, always(says("abc")), func(o *Options) { o.Context = 4 })
	for path, body := range map[string]string{"/v1/completions": `{"prompt":[1,2,3,4]}`, "/v1/chat/completions": `{"messages":[{"role":"user","content":"long"}]}`} {
		w := h.post(path, body)
		e := refusedAs(t, w)
		if w.Code != 400 || e.Code != "context_length_exceeded" || !strings.Contains(e.Message, "maximum context length is 3 tokens for a prompt") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	for body, want := range map[string]int{`{"prompt":[1,2]}`: 2, `{"prompt":[1,2],"max_tokens":1}`: 1, `{"prompt":[1,2],"max_tokens":100}`: 2} {
		h.post("/v1/completions", body)
		records := h.port.seen()
		if got := records[len(records)-1].req.MaxTokens; got != want {
			t.Errorf("%s: at most %d tokens, want %d", body, got, want)
		}
	}
}

// A prompt has one limit, whether it is a little over it or over the whole context, and it is named by
// its key; a response may have what is left of the context.
func TestPromptLimit(t *testing.T) {
	h := newHouse(t, always(says("abc")), func(o *Options) { o.Context, o.PromptTokens = 8, 3 })
	for _, prompt := range []string{"[1,2,3,4]", "[1,2,3,4,5,6,7]", "[1,2,3,4,5,6,7,8,9]"} {
		w := h.post("/v1/completions", `{"prompt":`+prompt+`}`)
		e := refusedAs(t, w)
		want := fmt.Sprintf("maximum context length is 3 tokens for a prompt, earlier turns included, and this one has %d: shorten the history to at most 3, or end the rollout; the limit is environment.prompt_tokens_max", len(prompt)/2)
		if e.Code != protocol.CodeContextExceeded || !strings.Contains(e.Message, want) || e.Param == nil || *e.Param != "prompt" || e.Detail["prompt_tokens_max"] != 3.0 {
			t.Errorf("%s: %d %s, want %q", prompt, w.Code, w.Body, want)
		}
	}
	if w := h.post("/v1/completions", `{"prompt":[1,2,3]}`); w.Code != 200 {
		t.Errorf("a prompt of the limit: %d %s", w.Code, w.Body)
	}
	if records := h.port.seen(); records[len(records)-1].req.MaxTokens != 5 {
		t.Errorf("a response may have %d tokens, want 5", records[len(records)-1].req.MaxTokens)
	}
	e := refusedAs(t, h.post("/v1/completions", `{"prompt":[`+strings.Repeat("3,", bodyBytes)+`3]}`))
	if !strings.Contains(e.Message, "maximum context length is 3 tokens for a prompt") || !strings.Contains(e.Message, "environment.prompt_tokens_max") {
		t.Errorf("a body that is too long: %+v", e)
	}
}

// Refusals of the ports reach the client with their status, and with word of whether to try again.
func TestRefusalsOfPorts(t *testing.T) {
	for _, c := range []struct {
		fails  error
		status int
		retry  string
		kind   string
	}{
		{protocol.Refuse(protocol.CodeExpired, "over"), 410, "false", "invalid_request_error"},
		{protocol.Refuse(protocol.CodeConflict, "twice"), 409, "false", "invalid_request_error"},
		{protocol.Refuse(protocol.CodeBusy, "full"), 429, "true", "rate_limit_error"},
		{protocol.Refuse(protocol.CodeUnavailable, "draining"), 503, "true", "server_error"},
		{protocol.ContextExceeded(9, 8), 400, "false", "invalid_request_error"},
		{fmt.Errorf("the run: %w", protocol.ErrRunEnded), 410, "false", "invalid_request_error"},
		{errors.New("broken"), 500, "false", "server_error"},
	} {
		h := newHouse(t, always(response{fails: c.fails}))
		w := h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
		e := refusedAs(t, w)
		if w.Code != c.status || w.Header().Get("X-Should-Retry") != c.retry || e.Type != c.kind || (w.Header().Get("Retry-After") != "") != (c.retry == "true") {
			t.Errorf("%v: %d %v %+v", c.fails, w.Code, w.Header(), e)
		}
	}
}

// A rollout that is not claimed, and none at all.
func TestRolloutIsNamed(t *testing.T) {
	h := newHouse(t, always(says("abc")))
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{protocol.RolloutHeader, "g1-s0-a0", 200}, {protocol.RolloutHeader, "g9-s0-a0", 404}, {protocol.RolloutHeader, "", 401}, {"Authorization", "Bearer g1-s0-a0", 401},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":[1]}`))
		r.Header.Set(c.header, c.value)
		w := httptest.NewRecorder()
		h.gateway.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s %q: %d %s", c.header, c.value, w.Code, w.Body)
		}
	}
}

// Without a template prompts of token ids are served, and what needs one is refused.
func TestWithoutTemplates(t *testing.T) {
	h := newHouse(t, always(says("abc")), func(o *Options) { o.Templates = nil })
	if w := h.post("/v1/completions", `{"prompt":[1]}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for path, body := range map[string]string{"/v1/completions": `{"prompt":"x"}`, "/v1/chat/completions": `{"messages":[{"role":"user","content":"x"}]}`} {
		if w := h.post(path, body); w.Code != 503 || !strings.Contains(w.Body.String(), "gateway.template") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// A template server that does not answer is no fault of the chat, and is asked anew.
func TestTemplateFails(t *testing.T) {
	h := newHouse(t, always(says("abc")))
	h.template.fails = errors.New("connection refused")
	h.template.rendering = func() {
		if h.port.held.Load() != 1 {
			t.Error("a claim may run out while its chat waits to be rendered")
		}
	}
	for path, body := range map[string]string{"/v1/completions": `{"prompt":"x"}`, "/v1/chat/completions": `{"messages":[{"role":"user","content":"x"}]}`} {
		if w := h.post(path, body); w.Code != 503 || w.Header().Get("X-Should-Retry") != "true" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	h.template.fails, h.template.rendering = nil, nil
	if h.port.held.Load() != 0 {
		t.Error("a claim is held beyond the call")
	}
	if w := h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestModels(t *testing.T) {
	h := newHouse(t, always(says("abc")), func(o *Options) { o.Model, o.Context = "Qwen/Qwen3-8B", 100 })
	for path, status := range map[string]int{"/v1/models": 200, "/v1/models/Qwen/Qwen3-8B": 200, "/v1/models/gpt": 404, "/v1/other": 404} {
		w := httptest.NewRecorder()
		h.gateway.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != status || status == 200 && !strings.Contains(w.Body.String(), `{"id":"Qwen/Qwen3-8B","object":"model","created":`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestMethodsThatAreNotThere(t *testing.T) {
	h := newHouse(t, always(says("abc")))
	for _, c := range [][3]string{{"PUT", "/v1/models", "GET, HEAD"}, {"OPTIONS", "/v1/chat/completions", "POST"}} {
		w := httptest.NewRecorder()
		if h.gateway.ServeHTTP(w, httptest.NewRequest(c[0], c[1], nil)); w.Code != 405 || w.Header().Get("Allow") != c[2] {
			t.Errorf("%v: %d %v %s", c, w.Code, w.Header(), w.Body)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"nothing": {}, "no model": {Rollouts: newPort(nil)},
		"sampling": {Rollouts: newPort(nil), Model: "m", ClientSampling: "x"}, "negative": {Rollouts: newPort(nil), Model: "m", Wait: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Requests of any shape are answered: never a panic, and a refusal that names no part of a prompt.
func FuzzRequest(f *testing.F) {
	f.Add(`{"messages":[{"role":"user","content":"x"}],"n":2,"stream":true,"tools":[{"function":{"name":"f"}}]}`, true)
	f.Add(`{"prompt":[1,2,3],"stop":["a"],"logprobs":1}`, false)
	f.Add(`{"prompt":[["x"]],"max_tokens":1e3}`, false)
	f.Add(`{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}],"tools":[[]]}`, true)
	f.Fuzz(func(t *testing.T, body string, chat bool) {
		h := newHouse(t, always(says("abc")))
		path := "/v1/completions"
		if chat {
			path = "/v1/chat/completions"
		}
		w := h.post(path, body)
		switch w.Code {
		case 200:
			if n := len(h.port.seen()); n < 1 || n > choicesMax {
				t.Errorf("%d turns", n)
			}
		case 400:
			if e := refusedAs(t, w); e.Message == "" {
				t.Errorf("%s", w.Body)
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// Messages have one form, which is its own form, and the keys of different chats differ.
func FuzzCanonicalMessage(f *testing.F) {
	f.Add(`{"role":"assistant","content":"","tool_calls":[{"index":0,"function":{"name":"f","arguments":"{ }"}}]}`)
	f.Add(`{"role":"user","content":[{"type":"text","text":"x"}],"name":null}`)
	f.Fuzz(func(t *testing.T, message string) {
		once := canonicalMessage([]byte(message))
		if again := canonicalMessage(once); string(again) != string(once) {
			t.Errorf("%q, then %q", once, again)
		}
	})
}

// Token ids are read as encoding/json reads numbers, wherever space stands.
func TestReadIDs(t *testing.T) {
	for text, want := range map[string][]int32{
		"[]": {}, "[ ]": {}, "[0]": {0}, "[ 1 ,\n2,\t3 ]": {1, 2, 3}, "[2147483647]": {2147483647},
	} {
		if got, err := readIDs([]byte(text), "prompt"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	w := newHouse(t, always(says("abc"))).post("/v1/completions", ` {"prompt" : [ [ 5 , 6 ] ], "return_token_ids":true} `)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"prompt_token_ids":[5,6]`) {
		t.Errorf("a list of one prompt: %d %s", w.Code, w.Body)
	}
}

// A body that no prompt of the context needs is refused before it is decoded, and its room is held
// until then.
func TestHopelessBodies(t *testing.T) {
	h := newHouse(t, always(says("abc")), func(o *Options) { o.Context = 13 })
	e := refusedAs(t, h.post("/v1/completions", `{"prompt":[`+strings.Repeat("3,", bodyBytes/2+bodyBytesAToken*13)+`3]}`))
	if e.Code != protocol.CodeContextExceeded {
		t.Errorf("refused as %+v", e)
	}
	body := &closing{Reader: strings.NewReader(`{"prompt":[1,2]}`)}
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
	r.Body = body
	watch := &closedWatch{body: body}
	if err := decode(r, watch, Options{}); err != nil || watch.early || !body.closed {
		t.Errorf("%v: closed while it was decoded %v, afterwards %v", err, watch.early, body.closed)
	}
}

type closing struct {
	*strings.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// closedWatch looks whether its body is closed when it is decoded.
type closedWatch struct {
	body  *closing
	early bool
}

func (c *closedWatch) UnmarshalJSON([]byte) error { c.early = c.body.closed; return nil }

// A prompt of a completion that was asked before begins a branch because it is repeated.
func TestRepeatedCompletions(t *testing.T) {
	h := newHouse(t, always(says("abc")))
	for i, c := range []struct{ prompt, began string }{{"[5,6]", "first"}, {"[5,6]", "repeated"}, {"[7]", "changed_history"}, {"[7]", "repeated"}, {"[5,6]", "repeated"}} {
		w := h.post("/v1/completions", `{"prompt":`+c.prompt+`}`)
		if !strings.Contains(w.Body.String(), `"began":"`+c.began+`"`) {
			t.Errorf("request %d: %s, want %s", i, w.Body, c.began)
		}
	}
}

// A prompt that the port finds too long is the prompt's fault in a completion, the messages' in a chat.
func TestTooLongForThePort(t *testing.T) {
	h := newHouse(t, func(int, protocol.TurnRequest) response {
		return response{fails: protocol.ContextExceeded(9, 8)}
	})
	for path, param := range map[string]string{"/v1/completions": "prompt", "/v1/chat/completions": "messages"} {
		e := refusedAs(t, h.post(path, `{"prompt":[1],"messages":[{"role":"user","content":"x"}]}`))
		if e.Param == nil || *e.Param != param {
			t.Errorf("%s: %+v", path, e)
		}
	}
}

// A process in whose place another may be refuses no agent for good, whatever it knows of the rollout.
func TestRefusedWhereAnotherMayGoOn(t *testing.T) {
	for _, why := range []error{nil, protocol.Refuse(protocol.CodeUnavailable, "another process may go on with it")} {
		want := http.StatusBadRequest
		if why != nil {
			want = http.StatusServiceUnavailable
		}
		h := newHouse(t, always(says("abc")), func(o *Options) { o.Rollouts = &port{replaced: why, ended: make(chan struct{})} })
		if w := h.post("/v1/chat/completions", `{"messages":[]}`); w.Code != want {
			t.Errorf("with %v: %d %s, want %d", why, w.Code, w.Body, want)
		}
	}
}

// stopping ends its claims as it is asked, because its process stops.
type stopping struct {
	*port
	asked bool
}

func (s *stopping) Ended(string) (<-chan struct{}, error) {
	if s.asked {
		return nil, protocol.Refuse(protocol.CodeUnavailable, "the control plane is stopping")
	}
	s.asked = true
	ended := make(chan struct{})
	close(ended)
	return ended, nil
}

// A call that comes just as its rollout ends is told why.
func TestACallAtTheEnd(t *testing.T) {
	h := newHouse(t, always(says("abc")), func(o *Options) { o.Rollouts = &stopping{port: newPort(nil)} })
	w := h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
	if e := refusedAs(t, w); w.Code != 503 || e.Code != protocol.CodeUnavailable {
		t.Errorf("%d %+v", w.Code, e)
	}
}
