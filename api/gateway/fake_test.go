package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// response is what the fake port samples.
type response struct {
	tokens   []int32
	versions []loop.Version
	finish   string
	// silent: the engine says no text. cut is how many tokens come at a time; 0 is all at the end.
	silent bool
	cut    int
	// lag is how many bytes the text of pieces stays behind their tokens.
	lag        int
	overridden []string
	// fails, if not nil, ends the turn after the tokens that stand here.
	fails error
	// waits, if not nil, is waited for before the first token.
	waits <-chan struct{}
}

// says is a response of a text that ends its turn.
func says(text string) response {
	return response{tokens: append(spell(text), imEnd), finish: "stop", cut: 3}
}

// record is one turn as the port saw it.
type record struct {
	prompt []int32
	req    protocol.TurnRequest
	branch int
	text   string
}

// port is a claimed rollout, with the rule of the real one: a prompt that begins with all of a
// branch goes on with it. What is sampled comes from play; only complete turns are recorded.
type port struct {
	play func(n int, req protocol.TurnRequest) response

	mu       sync.Mutex
	branches [][]int32
	records  []record
	begun    int
	ended    chan struct{}
	// held counts calls that hold their claim.
	held atomic.Int32
	// replaced, if not nil, takes the place of every error.
	replaced error
	// running counts turns that have not returned.
	running sync.WaitGroup
}

func newPort(play func(n int, req protocol.TurnRequest) response) *port {
	return &port{play: play, ended: make(chan struct{})}
}

func (p *port) Hold(context.Context, string) (release func()) {
	p.held.Add(1)
	return func() { p.held.Add(-1) }
}

func (p *port) Lasting(_ context.Context, id string, err error) error {
	if p.replaced != nil {
		return p.replaced
	}
	return err
}

func (p *port) Ended(id string) (<-chan struct{}, error) {
	if !strings.HasPrefix(id, "g1-") {
		return nil, protocol.Refuse(protocol.CodeNotFound, "%s is not claimed", id)
	}
	return p.ended, nil
}

func (p *port) Turn(ctx context.Context, id string, req protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	p.running.Add(1)
	defer p.running.Done()
	p.mu.Lock()
	n := p.begun
	p.begun++
	r := p.play(n, req)
	p.mu.Unlock()
	if r.waits != nil {
		select {
		case <-r.waits:
		case <-ctx.Done():
			return protocol.TurnReply{}, ctx.Err()
		}
	}
	if req.MaxTokens > 0 && len(r.tokens) > req.MaxTokens {
		r.tokens, r.finish = r.tokens[:req.MaxTokens], "length"
	}
	text, err := p.deliver(ctx, r, onTokens)
	if err != nil {
		return protocol.TurnReply{}, err
	}
	if r.versions == nil {
		r.versions = make([]loop.Version, len(r.tokens))
	}
	reply := protocol.TurnReply{Tokens: r.tokens, Logprobs: logprobsOf(r.tokens), Versions: r.versions, Text: text, Finish: r.finish, Overridden: r.overridden}
	if r.silent {
		reply.Text = ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	reply.Branch = p.add(req.Prompt, r.tokens)
	reply.Branches = len(p.branches)
	p.records = append(p.records, record{slices.Clone(req.Prompt), req, reply.Branch, text})
	return reply, nil
}

// deliver calls onTokens with the response piece by piece, text never ending inside a character.
func (p *port) deliver(ctx context.Context, r response, onTokens func(protocol.TurnDelta)) (string, error) {
	text, said := decodeIDs(r.tokens), 0
	for at := 0; r.cut > 0 && at < len(r.tokens); at += r.cut {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		end := min(at+r.cut, len(r.tokens))
		d := protocol.TurnDelta{Tokens: r.tokens[at:end], Logprobs: logprobsOf(r.tokens[at:end])}
		if now := decodeIDs(r.tokens[:end]); !r.silent && (end == len(r.tokens) || !strings.HasSuffix(now, "\uFFFD")) {
			if end < len(r.tokens) {
				now = now[:max(said, len(now)-r.lag)]
			}
			d.Text, said = now[said:], len(now)
		}
		onTokens(d)
	}
	if r.fails != nil {
		return "", r.fails
	}
	return text, ctx.Err()
}

// add puts a response into the longest branch that its prompt goes on with, or a new one.
func (p *port) add(prompt, response []int32) int {
	best := -1
	for i, b := range p.branches {
		if len(prompt) >= len(b) && slices.Equal(prompt[:len(b)], b) && (best < 0 || len(b) > len(p.branches[best])) {
			best = i
		}
	}
	if best < 0 {
		best = len(p.branches)
		p.branches = append(p.branches, nil)
	}
	p.branches[best] = slices.Concat(prompt, response)
	return best
}

func logprobsOf(tokens []int32) []float32 {
	logprobs := make([]float32, len(tokens))
	for i, id := range tokens {
		logprobs[i] = -float32(id) / 1024
	}
	return logprobs
}

func (p *port) seen() []record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.records)
}

// house is a gateway over a fake port and the reference template.
type house struct {
	t        *testing.T
	gateway  *Gateway
	port     *port
	template *reference
}

func newHouse(t *testing.T, play func(n int, req protocol.TurnRequest) response, change ...func(*Options)) *house {
	t.Helper()
	h := &house{t: t, port: newPort(play), template: &reference{}}
	o := Options{Rollouts: h.port, Templates: h.template, Model: "tiny", Logf: t.Logf, Calls: calls.ByName("hermes").In(nil)}
	for _, c := range change {
		c(&o)
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	h.gateway = g
	t.Cleanup(func() { g.Close() })
	return h
}

// post sends a body for the rollout g1-s0-a0.
func (h *house) post(path, body string) *httptest.ResponseRecorder {
	h.t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set(protocol.RolloutHeader, "g1-s0-a0")
	h.gateway.ServeHTTP(&wavering{ResponseRecorder: w}, r)
	return w
}

// parsed is an answer as a client reads it.
type parsed struct {
	ID, Object, Model string
	Choices           []struct {
		Index        int
		Text         string
		Message      *json.RawMessage
		FinishReason string   `json:"finish_reason"`
		TokenIDs     []int32  `json:"token_ids"`
		PromptIDs    []int32  `json:"prompt_token_ids"`
		Logprobs     *anyLogs `json:"logprobs"`
		Headway      struct {
			Branch     int
			Began      string
			Versions   []versionRun
			Overridden []string
		}
	}
	Usage     usage
	PromptIDs []int32 `json:"prompt_token_ids"`
}

type anyLogs struct {
	Content []struct {
		Token   string
		Logprob float64
	}
	Tokens        []string
	TokenLogprobs []float64 `json:"token_logprobs"`
}

// ask sends a chat and reads the answer.
func (h *house) ask(body any) parsed {
	h.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		h.t.Fatal(err)
	}
	w := h.post("/v1/chat/completions", string(text))
	if w.Code != http.StatusOK {
		h.t.Fatalf("%d: %s", w.Code, w.Body)
	}
	var reply parsed
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil {
		h.t.Fatalf("%v: %s", err, w.Body)
	}
	return reply
}

func (p parsed) answer(t *testing.T, i int) answer {
	t.Helper()
	var a answer
	if p.Choices[i].Message == nil {
		t.Fatal("no message")
	}
	if err := json.Unmarshal(*p.Choices[i].Message, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

type object = map[string]any

func user(text string) object { return object{"role": "user", "content": text} }

// event is one event of a stream as a client reads it.
type event struct {
	Choices []struct {
		Index        int
		Text         string
		Delta        *streamDelta
		FinishReason *string  `json:"finish_reason"`
		TokenIDs     []int32  `json:"token_ids"`
		PromptIDs    []int32  `json:"prompt_token_ids"`
		Logprobs     *anyLogs `json:"logprobs"`
		Headway      json.RawMessage
	}
	Usage     *usage
	Error     *protocol.CompletionError
	PromptIDs []int32 `json:"prompt_token_ids"`
}

type streamDelta struct {
	Role      string
	Content   *string
	Reasoning string `json:"reasoning_content"`
	ToolCalls []struct {
		Index int
		toolCall
	} `json:"tool_calls"`
}

// readEvents reads a stream strictly: every event is one line of data, every comment begins with a colon.
func readEvents(t *testing.T, text string) (events []event, comments int, done bool) {
	t.Helper()
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		switch data, ok := strings.CutPrefix(block, "data: "); {
		case strings.HasPrefix(block, ":"):
			comments++
		case !ok || strings.ContainsAny(data, "\n\r\u2028\u2029\u0085"):
			t.Fatalf("no event: %q", block)
		case done:
			t.Fatalf("more after [DONE]: %q", block)
		case data == "[DONE]":
			done = true
		default:
			var e event
			decoder := json.NewDecoder(bytes.NewReader([]byte(data)))
			if err := decoder.Decode(&e); err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			events = append(events, e)
		}
	}
	return events, comments, done
}

// gathered is what a client has made of a stream's choice.
type gathered struct {
	content  string
	thought  string
	calls    []toolCall
	finish   string
	tokens   []int32
	logprobs int
	headway  string
}

func gather(t *testing.T, events []event) map[int]*gathered {
	t.Helper()
	all := make(map[int]*gathered)
	for _, e := range events {
		for _, c := range e.Choices {
			g := all[c.Index]
			if g == nil {
				g = &gathered{}
				all[c.Index] = g
			}
			if g.finish != "" {
				t.Fatalf("choice %d goes on after its end", c.Index)
			}
			g.content += c.Text
			if c.Delta != nil {
				if c.Delta.Content != nil {
					g.content += *c.Delta.Content
				}
				g.thought += c.Delta.Reasoning
				for _, call := range c.Delta.ToolCalls {
					if call.Function.Name != "" {
						if call.Index != len(g.calls) {
							t.Fatalf("call %d comes as number %d", len(g.calls), call.Index)
						}
						g.calls = append(g.calls, call.toolCall)
						continue
					}
					if call.Index >= len(g.calls) || call.ID != "" {
						t.Fatalf("arguments of call %d, id %q, after %d calls", call.Index, call.ID, len(g.calls))
					}
					g.calls[call.Index].Function.Arguments += call.Function.Arguments
				}
			}
			g.tokens = append(g.tokens, c.TokenIDs...)
			if c.Logprobs != nil {
				g.logprobs += len(c.Logprobs.Content) + len(c.Logprobs.Tokens)
			}
			if c.FinishReason != nil {
				g.finish = *c.FinishReason
				g.headway = string(c.Headway)
			}
		}
	}
	return all
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func equalTokens(t *testing.T, what string, got, want []int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Fatalf("%s: differs at token %d of %d and %d:\n got %s\nwant %s", what, at, len(got), len(want), shown(got), shown(want))
	}
}

func shown(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id >= byteIDs:
			fmt.Fprintf(&b, "[%s]", decodeIDs([]int32{id}))
		default:
			fmt.Fprintf(&b, "<%d>", id)
		}
	}
	return b.String()
}

// wavering is a connection that has room every other time that it is asked.
type wavering struct {
	*httptest.ResponseRecorder
	asked int
}

func (w *wavering) Writable() bool {
	w.asked++
	return w.asked%2 == 0
}
