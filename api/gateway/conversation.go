package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
)

// errNotExtendable: the template renders a chat otherwise once it goes on, so that tokens that
// were sampled cannot stand before what follows them.
var errNotExtendable = errors.New("the template does not extend its renderings")

// turn is a response and the prompt that it was sampled after, which begins with the tokens of
// another turn where it went on from one. Nothing of a turn ever changes.
type turn struct {
	before *turn
	// added is what follows the tokens before: the end of that message, what was said since, and
	// the beginning of this one; the whole prompt where nothing is before.
	added, response []int32
	// total counts all tokens, those before included.
	total int
	// keys are the histories that it is kept under, messages how many a history has with it, and thought its
	// reasoning.
	keys     []historyKey
	messages int
	thought  string
	// rendered is the rendering that the prompt was made of.
	rendered prefix
	// media stand in the prompt, those before included.
	media []media.Item
}

// sequence returns all tokens up to the end of the response, with room for more.
func (t *turn) sequence(room int) []int32 {
	tokens := make([]int32, t.total, t.total+room)
	end := t.total
	for at := t; at != nil; at = at.before {
		end -= len(at.response)
		copy(tokens[end:], at.response)
		end -= len(at.added)
		copy(tokens[end:], at.added)
	}
	return tokens
}

// conversation is what is remembered of one rollout: every turn under the history that it made.
type conversation struct {
	ended               <-chan struct{}
	turnsMax, tokensMax int

	mu    sync.Mutex
	turns map[historyKey]*turn
	// order has the turns, oldest first; tokens counts theirs.
	order  []*turn
	tokens int
	// asked are histories by how many responses were sampled after them, branches the numbers that were seen.
	asked    map[historyKey]int
	branches map[int]bool
	// agents are those that a branch was begun for.
	agents map[string]bool
	// pictures are the images that it holds until it is released; the mutex of the gateway's guards both.
	pictures map[media.Hash]bool
	released bool
}

func newConversation(ended <-chan struct{}, turnsMax, tokensMax int) *conversation {
	return &conversation{ended: ended, turnsMax: turnsMax, tokensMax: tokensMax,
		turns: make(map[historyKey]*turn), asked: make(map[historyKey]int), branches: make(map[int]bool), agents: make(map[string]bool), pictures: make(map[media.Hash]bool)}
}

// longest returns the turn that the chat goes on from, and how many of its messages that covers.
// Of two that say the same and thought differently, it is the one whose thoughts the client sends back.
func (c *conversation) longest(keys []historyKey, messages []json.RawMessage) (*turn, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := len(keys) - 1; n > 0; n-- {
		if thought := reasoningOf(messages[n-1]); thought != "" {
			if t := c.turns[keys[n].next([]byte(thought))]; t != nil {
				return t, n
			}
		}
		if t := c.turns[keys[n]]; t != nil {
			return t, n
		}
	}
	return nil, 0
}

// Reasons for which a branch begins.
const (
	// beganFirst: the rollout's first. beganChoice: a further choice of the same request.
	beganFirst  = "first"
	beganChoice = "n"
	// beganAgent: the first of another agent.
	beganAgent = "agent"
	// beganRepeated: after the same history a response was sampled before, or is at the same time.
	beganRepeated = "repeated"
	// beganChanged: the history is not one that the rollout has come by.
	beganChanged = "changed_history"
	// beganFallback: the template cannot go on from what was sampled.
	beganFallback = "fallback"
)

// note takes note of a response and returns why its branch began, empty for one that went on.
func (c *conversation) note(p *prompt, agent string, index int, reply *protocol.TurnReply) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := ""
	if !c.branches[reply.Branch] {
		switch {
		case index > 0:
			why = beganChoice
		case len(c.branches) == 0:
			why = beganFirst
		case !c.agents[agent]:
			why = beganAgent
		case p.unfit:
			why = beganFallback
		case p.before != nil || c.asked[p.history()] > 0:
			why = beganRepeated
		default:
			why = beganChanged
		}
	}
	c.branches[reply.Branch], c.agents[agent] = true, true
	if len(c.asked) >= 2*c.turnsMax {
		clear(c.asked) // it only tells a repeated history from a changed one
	}
	c.asked[p.history()]++
	return why
}

// times is how many responses were sampled after a history.
func (c *conversation) times(history historyKey) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[history]
}

// remember keeps a response under the histories of chats that say it, so that a chat can go on from it. With
// what was thought it stands there once more.
func (c *conversation) remember(p *prompt, reply *protocol.TurnReply, before historyKey, told []answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &turn{before: p.before, added: p.added, response: reply.Tokens, total: len(p.tokens) + len(reply.Tokens), messages: len(p.keys), thought: told[0].Reasoning, rendered: p.rendered, media: p.media}
	for _, a := range told {
		said := before.next(canonicalAnswer(a))
		keys := []historyKey{said}
		if a.Reasoning != "" {
			keys = append(keys, said.next([]byte(a.Reasoning)))
		}
		for _, key := range keys {
			if _, ok := c.turns[key]; !ok { // two choices that say the same: either may be gone on from
				c.turns[key], t.keys = t, append(t.keys, key)
			}
		}
	}
	if t.keys == nil {
		return
	}
	c.order = append(c.order, t)
	c.tokens += len(t.added) + len(t.response)
	c.trim()
}

// trim forgets the oldest turns past a bound, the last one never.
func (c *conversation) trim() {
	for len(c.order) > 1 && (len(c.order) > c.turnsMax || c.tokens > c.tokensMax) {
		t := c.order[0]
		c.tokens -= len(t.added) + len(t.response)
		for _, key := range t.keys {
			delete(c.turns, key)
		}
		c.order = c.order[1:]
	}
}

// prompt is what a response is sampled after.
type prompt struct {
	tokens []int32
	// before is the turn it goes on from, added what it adds to that.
	before *turn
	added  []int32
	// rendered is the chat's rendering: another one than tokens where a response is spelled otherwise in it.
	rendered prefix
	// media stand among the tokens.
	media []media.Item
	// keys are the histories of its messages, nil for a completion.
	keys []historyKey
	// unfit: it goes on from a turn, but the template could not.
	unfit bool
}

// history is the key of the whole chat; of a completion that of its tokens.
func (p *prompt) history() historyKey {
	if len(p.keys) == 0 {
		return tokensKey(p.tokens)
	}
	return p.keys[len(p.keys)-1]
}

// prompt returns the tokens that a request's responses are sampled after.
func (g *Gateway) prompt(ctx context.Context, c *conversation, req *request) (*prompt, error) {
	if !req.chat && req.tokens != nil {
		return &prompt{tokens: req.tokens}, nil
	}
	if g.templates == nil {
		return nil, protocol.Refuse(protocol.CodeUnavailable, "nothing here renders chats or reads text: no engine can, and gateway.template names no server that does. Prompts of token ids are served")
	}
	if !req.chat {
		tokens, err := g.templates.Encode(ctx, req.text)
		return &prompt{tokens: tokens}, rendering(err, "reading the prompt's tokens")
	}
	p := &prompt{keys: histories(req)}
	if t, n := c.longest(p.keys, req.messages); t != nil {
		added, whole, err := g.templates.continued(ctx, g.opt.Calls, sampled(g.opt.Calls, req, t), t, n)
		if err == nil {
			placed, err := g.place(ctx, req, n, added, t.total)
			if err != nil {
				return nil, err
			}
			p.before, p.added, p.tokens = t, added, append(t.sequence(len(added)), added...)
			p.rendered = prefixOf(whole)
			p.media = append(slices.Clip(t.media), placed...)
			return p, nil
		}
		if !errors.Is(err, errNotExtendable) {
			return nil, err
		}
		p.unfit = true
		g.unfit.Do(func() {
			g.opt.Logf("gateway: the chat template renders earlier messages otherwise once a chat goes on, as those do that leave out earlier thinking: such turns begin branches of their own, and are counted as fallback")
		})
	}
	whole, err := g.templates.chat(ctx, req.messages, req.tools, true)
	if err == nil && req.callable && !p.unfit { // a turn of one that is unfit began with the same tools, and was looked at
		err = g.templates.seesTools(ctx, req, whole)
	}
	p.tokens, p.added = whole, whole
	if err == nil {
		p.rendered = prefixOf(whole)
		p.media, err = g.place(ctx, req, 0, whole, 0)
	}
	return p, err
}

// seesTools refuses a chat in whose rendering its tools do not show: the policy would never hear of
// them, and be trained on that. Where they show is the template's; a chat that it renders with them
// alone has them.
func (t *templates) seesTools(ctx context.Context, req *request, whole []int32) error {
	without, err := t.chat(ctx, req.messages, nil, true)
	switch {
	case err != nil && errors.Is(extendable(err), errNotExtendable):
		return nil
	case err != nil:
		return err
	case slices.Equal(whole, without):
		return invalid("tools", "the chat template says nothing of tools: this chat is rendered with them as without, so that the policy would not see them. Have the server that renders use a template that does (--chat-template of vLLM and SGLang, or a model whose own does), or say what tools there are in a message and send no tools")
	}
	return nil
}

// continued returns what follows a turn's tokens in the prompt of a chat whose first n messages end
// with its response: the end of that message where it was not sampled, and all that was added. It also
// returns the chat's rendering.
func (t *templates) continued(ctx context.Context, dialect *calls.Dialect, req *request, from *turn, n int) (added, whole []int32, err error) {
	closing, err := t.closing(ctx)
	if err != nil {
		return nil, nil, extendable(err)
	}
	if whole, err = t.chat(ctx, req.messages, req.tools, true); err != nil {
		return nil, nil, err
	}
	added, ok := proven(dialect, closing, from, whole)
	if !ok {
		added, err = t.compared(ctx, dialect, req, from, n, closing, whole)
	}
	return added, whole, err
}

// compared is what continued returns, told by a second rendering: of the chat up to the response.
func (t *templates) compared(ctx context.Context, dialect *calls.Dialect, req *request, from *turn, n int, closing, whole []int32) ([]int32, error) {
	before, err := t.chat(ctx, req.messages[:n], req.tools, false)
	if err != nil {
		return nil, extendable(err)
	}
	if last := len(from.response) - 1; last >= 0 && dialect.Ends(from.response[last]) {
		if added, ok := behindEnd(dialect, before, whole); ok {
			return added, nil
		}
	}
	if len(before) < len(closing) || !slices.Equal(before[len(before)-len(closing):], closing) {
		return nil, errNotExtendable
	}
	if len(whole) >= len(before) && slices.Equal(whole[:len(before)], before) {
		added := append(slices.Clone(closing), whole[len(before):]...)
		if len(closing) == 0 { // the next message's beginning is what ends this one
			closing = added[:min(1, len(added))]
		}
		return added[overlap(from.response, closing):], nil
	}
	added, err := t.decorated(ctx, req, n, before, whole)
	if err != nil {
		return nil, extendable(err)
	}
	if len(added) < len(closing) || !slices.Equal(added[:len(closing)], closing) {
		return nil, errNotExtendable
	}
	return added[overlap(from.response, closing):], nil
}

// behindEnd returns what follows the token that ends a message, where a template may write another in its
// place once the chat goes on: the token that was sampled stays.
func behindEnd(dialect *calls.Dialect, before, whole []int32) ([]int32, bool) {
	n := len(before) - 1
	if n < 0 || !dialect.Ends(before[n]) || len(whole) <= n || !slices.Equal(whole[:n], before[:n]) || !dialect.Ends(whole[n]) {
		return nil, false
	}
	return slices.Clone(whole[n+1:]), true
}

// sampled is a request whose answers say what the policy has thought as it has sampled it, whatever the
// client sends back of that. So a template that leaves out earlier thoughts is seen to do so.
func sampled(dialect *calls.Dialect, req *request, from *turn) *request {
	bare := *req
	bare.messages = slices.Clone(req.messages)
	for at := from; at != nil; at = at.before {
		i := at.messages - 1
		bare.messages[i] = withThought(bare.messages[i], dialect.Thought(at.thought))
	}
	return &bare
}

// extendable tells a template that cannot render a chat's beginning from one that cannot be reached.
func extendable(err error) error {
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok && refusal.Code == protocol.CodeInvalid {
		return errNotExtendable
	}
	return err
}

// overlap is the length of the longest end of response that closing begins with: what was sampled
// of a message's end is not repeated.
func overlap(response, closing []int32) int {
	for n := min(len(response), len(closing)); n > 0; n-- {
		if slices.Equal(response[len(response)-n:], closing[:n]) {
			return n
		}
	}
	return 0
}
