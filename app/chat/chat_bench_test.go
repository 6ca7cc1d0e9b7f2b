package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
	"github.com/headway-rl/headway/loop"
)

var renderer = flag.String("renderer", "", "URL of a vLLM that renders chats of the benchmark, in the place of a fake")

// An episode's turns, and the tokens of its messages: letters, which are a token each. It ends at 50k.
const episodeTurns, episodeSaid, episodeAnswer = 30, 1250, 420

// counted passes calls on to a server that renders, and counts its renderings of chats.
type counted struct {
	to string
	// rendering is in ns.
	renders, up, down, rendering atomic.Int64
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	began := time.Now()
	call, err := http.NewRequestWithContext(r.Context(), r.Method, c.to+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	call.Header = r.Header.Clone()
	reply, err := http.DefaultClient.Do(call)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(reply.Body)
	if bytes.Contains(body, []byte(`"messages"`)) {
		took := int64(time.Since(began))
		c.renders.Add(1)
		c.up.Add(int64(len(body)))
		c.down.Add(int64(len(text)))
		c.rendering.Add(took)
	}
	w.WriteHeader(reply.StatusCode)
	_, _ = w.Write(text)
}

// saying is a rollout that says what is put in its mouth, in the template's spelling or in another.
type saying struct {
	text   string
	tokens []int32
}

func (*saying) Ended(string) (<-chan struct{}, error) { return make(chan struct{}), nil }

func (*saying) Hold(context.Context, string) func() { return func() {} }

func (*saying) Lasting(_ context.Context, _ string, err error) error { return err }

func (s *saying) Turn(context.Context, string, protocol.TurnRequest, func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	return protocol.TurnReply{Tokens: s.tokens, Logprobs: make([]float32, len(s.tokens)), Versions: make([]loop.Version, len(s.tokens)), Text: s.text, Finish: "stop"}, nil
}

// BenchmarkChatEpisode has a chat of 30 turns that grows to 50k tokens; the server that renders is reached over a
// socket. Answers are sampled in the template's spelling, or every one in another.
func BenchmarkChatEpisode(b *testing.B) {
	for _, spelled := range []string{"as the template spells", "otherwise"} {
		b.Run(spelled, func(b *testing.B) {
			to, end := *renderer, int32(4)
			if to == "" {
				policy := enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: servedTemplate, Context: 1 << 16, Weights: "m0", Chat: true})
				defer policy.Close()
				to, end = policy.URL(), servedTemplate.EOS
			}
			count := &counted{to: to}
			front := httptest.NewServer(count)
			defer front.Close()
			server, err := upstream.NewServer(upstream.ServerOptions{URL: front.URL})
			if err != nil {
				b.Fatal(err)
			}
			engine, err := upstream.New(upstream.Options{Name: "renderer", Slots: 1, Server: server, Dialect: vllm.New(), Vocabulary: 64})
			if err != nil {
				b.Fatal(err)
			}
			defer engine.Close()
			templates, err := upstream.NewTemplates(upstream.TemplatesOptions{Engines: []*upstream.Engine{engine}})
			if err != nil {
				b.Fatal(err)
			}
			var last time.Duration
			for episode := 0; b.Loop(); episode++ {
				last += playEpisode(b, serverTemplate{templates}, episode, end, spelled == "otherwise")
			}
			turns := float64(b.N * episodeTurns)
			b.ReportMetric(float64(count.renders.Load())/turns, "renderings/turn")
			b.ReportMetric(float64(count.up.Load())/turns/1e3, "kB-sent/turn")
			b.ReportMetric(float64(count.down.Load())/turns/1e3, "kB-read/turn")
			b.ReportMetric(float64(count.rendering.Load())/turns/1e6, "server-ms/turn")
			b.ReportMetric(float64(last.Milliseconds())/float64(b.N), "ms-last-turn")
			b.ReportMetric(b.Elapsed().Seconds()*1e3/turns, "ms/turn")
		})
	}
}

// playEpisode returns what the last turn took.
func playEpisode(b *testing.B, template serverTemplate, episode int, end int32, otherwise bool) (last time.Duration) {
	b.Helper()
	says := &saying{}
	g, err := gateway.New(gateway.Options{Rollouts: says, Templates: template, Model: "tiny"})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	r := rand.New(rand.NewPCG(28, uint64(episode)))
	letters := func(n int) string {
		var text strings.Builder
		for range n {
			text.WriteByte(byte('a' + r.IntN(26)))
		}
		return text.String()
	}
	chat := []map[string]any{}
	for range episodeTurns {
		says.text = letters(episodeAnswer)
		if says.tokens, err = template.Encode(b.Context(), says.text); err != nil {
			b.Fatal(err)
		}
		if otherwise {
			says.tokens[0]++
		}
		says.tokens = append(says.tokens, end)
		chat = append(chat, map[string]any{"role": "user", "content": letters(episodeSaid)})
		body, err := json.Marshal(map[string]any{"messages": chat})
		if err != nil {
			b.Fatal(err)
		}
		w, call := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
		call.Header.Set(protocol.RolloutHeader, fmt.Sprintf("g1-s%d-a0", episode))
		began := time.Now()
		g.ServeHTTP(w, call)
		if last = time.Since(began); w.Code != http.StatusOK || len(chat) > 1 && bytes.Contains(w.Body.Bytes(), []byte(`"began":"fallback"`)) {
			b.Fatalf("%d: %.300s", w.Code, w.Body)
		}
		chat = append(chat, map[string]any{"role": "assistant", "content": says.text})
	}
	return last
}
