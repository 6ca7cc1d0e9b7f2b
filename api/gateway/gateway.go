package gateway

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
)

// Options say what the gateway serves. Rollouts and Model are needed, the rest may be left out.
type Options struct {
	Rollouts Rollouts
	// Templates renders chats; without it only prompts of token ids are served.
	Templates Templates
	// Model is the name under which the policy is listed. Requests may name any model: there is one.
	Model string
	// Context is how many tokens prompt and response may have together; 0 leaves it to the engines.
	Context int
	// PromptTokens is how many tokens a prompt may have, below Context; 0 for as many as leave room for one.
	PromptTokens int
	// Calls is how the policy writes calls of tools and reasoning, nil to tell neither from text.
	Calls *calls.Dialect
	// ClientSampling is the document's: override, refuse or allow. Default override.
	ClientSampling string
	// Wait is how long a response may take to begin before its client is told to come again. Default 10 minutes.
	Wait time.Duration
	// Heartbeat is the time between two comments on a stream that has nothing to say. Default 15 s.
	Heartbeat time.Duration
	// TurnsMax bounds the turns of one rollout that can be gone on from, TurnTokensMax the tokens kept
	// of them. The oldest are forgotten first, and a chat that goes on from them begins a new branch.
	// Defaults 4096 and 16 Mi.
	TurnsMax, TurnTokensMax int
	// RenderedTokensMax bounds the renderings of chats that are kept for siblings. Default 16 Mi.
	RenderedTokensMax int
	// MediaBytesMax bounds the bytes of images that are kept for conversations, each image once. Default 512 Mi.
	MediaBytesMax int64
	// Clock reads the time of replies. Default time.Now.
	Clock func() time.Time
	// Logf, if not nil, is told of defects, and once of a template that chats cannot go on under. Several
	// goroutines call it. It never gets a prompt or a response.
	Logf func(format string, args ...any)

	// mark begins the words for images within messages.
	mark string
}

func (o Options) withDefaults() Options {
	o.ClientSampling = cmp.Or(o.ClientSampling, "override")
	o.Wait = cmp.Or(o.Wait, 10*time.Minute)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.TurnsMax = cmp.Or(o.TurnsMax, 4096)
	o.TurnTokensMax = cmp.Or(o.TurnTokensMax, 16<<20)
	o.RenderedTokensMax = cmp.Or(o.RenderedTokensMax, 16<<20)
	o.MediaBytesMax = cmp.Or(o.MediaBytesMax, 512<<20)
	o.mark = "image-" + rand.Text() + "-"
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}

// promptMax is how many tokens a prompt may have, 0 for no limit that is known.
func (o Options) promptMax() int {
	switch {
	case o.PromptTokens > 0 && o.Context > 0:
		return min(o.PromptTokens, o.Context-1)
	case o.Context > 0:
		return o.Context - 1
	}
	return o.PromptTokens
}

func (o Options) validate() error {
	switch {
	case o.Rollouts == nil:
		return errors.New("gateway: Rollouts is nil: there is nothing to sample with")
	case o.Model == "":
		return errors.New("gateway: Model is empty: want the name that clients see under /v1/models")
	case !slices.Contains([]string{"override", "refuse", "allow"}, o.ClientSampling):
		return fmt.Errorf("gateway: ClientSampling is %q: want override, refuse or allow", o.ClientSampling)
	case o.Context < 0 || o.PromptTokens < 0 || o.Wait < 0 || o.Heartbeat < 0 || o.TurnsMax < 0 || o.TurnTokensMax < 0 || o.RenderedTokensMax < 0 || o.MediaBytesMax < 0:
		return errors.New("gateway: a bound is negative: want a positive one, or 0 for the default")
	}
	return nil
}

// Gateway answers OpenAI's paths. It is an http.Handler and safe for concurrent use. The caller has
// been authenticated before: the gateway reads which rollout is asked for, and no secret.
type Gateway struct {
	opt       Options
	mux       *http.ServeMux
	metrics   *metrics
	templates *templates
	pictures  *pictures
	started   time.Time
	// textless is true once a response has ended for which an engine gave no text.
	textless atomic.Bool

	mu            sync.Mutex
	conversations map[string]*conversation
	closing       chan struct{}
	closed        bool
	watching      sync.WaitGroup
	unfit         sync.Once
	// mute: that no call was ever told has been said.
	mute sync.Once
}

// New returns a gateway. Close ends what it has running.
func New(options Options) (*Gateway, error) {
	o := options.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	g := &Gateway{opt: o, mux: http.NewServeMux(), metrics: newMetrics(), started: o.Clock(),
		conversations: make(map[string]*conversation), closing: make(chan struct{}),
		pictures: &pictures{mark: o.mark, most: o.MediaBytesMax, kept: make(map[media.Hash]*picture), holders: make(map[*conversation]int64)}}
	if o.Templates != nil {
		g.templates = newTemplates(o.Templates, o.RenderedTokensMax, g.pictures)
	}
	g.mux.HandleFunc("POST /v1/chat/completions", g.sampling("/v1/chat/completions", decodeChat))
	g.mux.HandleFunc("POST /v1/completions", g.sampling("/v1/completions", decodeCompletion))
	g.mux.HandleFunc("GET /v1/models", g.listModels)
	g.mux.HandleFunc("GET /v1/models/{id...}", g.showModel)
	g.mux.HandleFunc("/", g.nowhere)
	return g, nil
}

// Close forgets all conversations and waits for what watches them. Requests under way end by their
// own contexts. Reading for a client that has left ends now.
func (g *Gateway) Close() error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.closing)
	}
	g.mu.Unlock()
	g.watching.Wait()
	return nil
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.mux.ServeHTTP(w, r) }

// rolloutOf names the rollout that a request is for, as the caller has found it by the key.
func rolloutOf(r *http.Request) (string, error) {
	if id := r.Header.Get(protocol.RolloutHeader); id != "" {
		return id, nil
	}
	return "", protocol.Refuse(protocol.CodeUnauthorized, "no rollout is named: want the claim's key as the API key")
}

// model is the policy as a client sees it.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Context int    `json:"max_model_len,omitempty"`
	Prompt  int    `json:"max_prompt_tokens,omitempty"`
}

func (g *Gateway) model() model {
	return model{g.opt.Model, "model", g.started.Unix(), "headway", g.opt.Context, g.opt.PromptTokens}
}

func (g *Gateway) listModels(w http.ResponseWriter, r *http.Request) {
	g.metrics.request("/v1/models", http.StatusOK)
	writeJSON(w, struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", []model{g.model()}})
}

func (g *Gateway) showModel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if id != g.opt.Model {
		g.refuse(w, "/v1/models", invalidModel(id, g.opt.Model))
		return
	}
	g.metrics.request("/v1/models", http.StatusOK)
	writeJSON(w, g.model())
}

func invalidModel(id, served string) *protocol.Refusal {
	return protocol.Refuse(protocol.CodeNotFound, "there is no model %.100q: this run's policy is %q", id, served).With("field", "model")
}

func (g *Gateway) nowhere(w http.ResponseWriter, r *http.Request) {
	if refusal := protocol.Elsewhere(w, r, g.mux); refusal != nil {
		g.refuse(w, "other", refusal)
		return
	}
	g.refuse(w, "other", protocol.Refuse(protocol.CodeNotFound, "no such path: the gateway has POST /v1/chat/completions, POST /v1/completions and GET /v1/models"))
}

// refuse answers with a refusal, before anything else was answered.
func (g *Gateway) refuse(w http.ResponseWriter, path string, refusal *protocol.Refusal) {
	g.metrics.request(path, refusal.Code.Status())
	if refusal.Code == protocol.CodeInternal {
		g.opt.Logf("gateway: %s: %v", path, refusal)
	}
	protocol.WriteCompletionError(w, refusal)
}

func writeJSON(w http.ResponseWriter, reply any) {
	text, err := json.Marshal(reply)
	if err != nil {
		protocol.WriteCompletionError(w, protocol.Refuse(protocol.CodeInternal, "the reply is no JSON: %v", err))
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(text, '\n')) // a client that has left reads nothing
}

// conversation returns what is remembered of a rollout, and begins it with the first request. It
// is forgotten when the claim ends.
func (g *Gateway) conversation(id string) (*conversation, error) {
	ended, err := g.opt.Rollouts.Ended(id)
	if err == nil && isClosed(ended) { // just now: it has a reason by now
		ended, err = g.opt.Rollouts.Ended(id)
	}
	if err != nil {
		return nil, err
	}
	if isClosed(ended) {
		return nil, protocol.Refuse(protocol.CodeExpired, "the rollout %.60q is over: claim another", id)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.conversations[id]; c != nil && !isClosed(c.ended) {
		return c, nil
	}
	c := newConversation(ended, g.opt.TurnsMax, g.opt.TurnTokensMax)
	if g.closed {
		return c, nil
	}
	g.conversations[id] = c
	g.watching.Go(func() { g.forget(id, c) })
	return c, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// forget waits for a claim's end and drops its conversation.
func (g *Gateway) forget(id string, c *conversation) {
	select {
	case <-c.ended:
	case <-g.closing:
	}
	g.pictures.release(c)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conversations[id] == c {
		delete(g.conversations, id)
	}
}
