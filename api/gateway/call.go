package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
)

// statusLeft is what a request is counted under whose client left before its end.
const statusLeft = 499

// usage counts tokens as clients read it: a prompt once, however many choices follow it.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func (u *usage) add(response int) {
	u.Completion += response
	u.Total = u.Prompt + u.Completion
}

// call is one request for responses.
type call struct {
	gateway *Gateway
	path    string
	began   time.Time
	rollout string
	agent   agent
	req     *request
	talk    *conversation
	prompt  *prompt
	// events is nil for an answer in one piece.
	events *events
	usage  usage
	// waiting: no token has come yet.
	waiting bool
	// recorded counts the choices that are complete.
	recorded int
}

// sampling handles a path that samples.
func (g *Gateway) sampling(path string, read func(*http.Request, Options) (*request, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.metrics.open.Add(1)
		defer g.metrics.open.Add(-1)
		c := &call{gateway: g, path: path, began: g.opt.Clock(), waiting: true}
		err := c.serve(w, r, read)
		if err != nil && c.rollout != "" && r.Context().Err() == nil {
			err = c.lasting(r.Context(), err)
		}
		switch {
		case err == nil:
			g.metrics.request(path, http.StatusOK)
		case r.Context().Err() != nil:
			g.metrics.request(path, statusLeft)
		case c.events != nil && c.events.began:
			refusal := refusalOf(r.Context(), err)
			g.metrics.request(path, refusal.Code.Status())
			c.events.fail(refusal)
		default:
			g.refuse(w, path, refusalOf(r.Context(), err))
		}
	}
}

// serve answers a request, or returns why not.
func (c *call) serve(w http.ResponseWriter, r *http.Request, read func(*http.Request, Options) (*request, error)) (err error) {
	if c.rollout, err = rolloutOf(r); err != nil {
		return err
	}
	defer c.gateway.opt.Rollouts.Hold(r.Context(), c.rollout)() // chats may wait for an engine that renders them
	if c.agent, err = agentOf(r); err != nil {
		return err
	}
	if c.req, err = read(r, c.gateway.opt); err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			err = protocol.Refuse(protocol.CodeTooLarge, "the body exceeds %d bytes", large.Limit)
		}
		return err
	}
	if c.talk, err = c.gateway.conversation(c.rollout); err != nil {
		return err
	}
	if err = c.gateway.pictures.hold(c.talk, c.req); err != nil {
		return err
	}
	if c.prompt, err = c.gateway.prompt(r.Context(), c.talk, c.req); err != nil {
		return err
	}
	if limit := c.gateway.opt.promptMax(); limit > 0 && len(c.prompt.tokens) > limit {
		return c.tooLong(limit)
	}
	if room := c.gateway.opt.Context - len(c.prompt.tokens); c.gateway.opt.Context > 0 && (c.req.maxTokens == 0 || c.req.maxTokens > room) {
		c.req.maxTokens = room
	}
	c.usage = usage{Prompt: len(c.prompt.tokens)}
	id, created := newID(c.req.chat), c.gateway.opt.Clock().Unix()
	if c.req.stream {
		c.events = newEvents(w, c.req, id, c.gateway.opt.Model, created)
		return c.stream(r.Context())
	}
	return c.whole(r.Context(), w, id, created)
}

func (c *call) tooLong(limit int) error {
	refusal := protocol.ContextExceeded(len(c.prompt.tokens), limit)
	if !c.req.chat {
		refusal.With("field", "prompt")
	}
	return refusal
}

// turn samples one response after the prompt. Its client is told to come again where the response
// does not begin in time: a slot is held by others, or no engine serves.
func (c *call) turn(ctx context.Context, arrived func(protocol.TurnDelta)) (reply protocol.TurnReply, err error) {
	g := c.gateway
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(g.opt.Wait, func() {
		cancel(protocol.Refuse(protocol.CodeBusy, "no token came within %s: the rollout's slot is held by others, or no engine serves. Nothing was sampled; try again", g.opt.Wait).With("wait_s", g.opt.Wait.Seconds()))
	})
	defer patience.Stop()
	defer func() {
		if thrown := recover(); thrown != nil {
			g.opt.Logf("gateway: defect: a turn panicked: %v\n%s", thrown, debug.Stack())
			err = protocol.Refuse(protocol.CodeInternal, "a defect of the server: its log has the place")
		}
	}()
	silent := true
	reply, err = g.opt.Rollouts.Turn(ctx, c.rollout, protocol.TurnRequest{Prompt: c.prompt.tokens, Media: c.prompt.media, MaxTokens: c.req.maxTokens, Sampling: c.req.sampling, Agent: c.agent.name, Train: c.agent.train}, func(d protocol.TurnDelta) {
		if silent && len(d.Tokens)+len(d.Text) > 0 {
			silent = false
			patience.Stop()
			c.first()
		}
		arrived(d)
	})
	if err != nil {
		refusal := refusalOf(ctx, err)
		if refusal.Code == protocol.CodeContextExceeded && !c.req.chat {
			refusal.With("field", "prompt")
		}
		return reply, c.final(refusal)
	}
	c.first()
	return reply, nil
}

// lasting asks whether the rollout may go on at another process, before the client is told that it does not.
func (c *call) lasting(ctx context.Context, err error) error {
	err = c.gateway.opt.Rollouts.Lasting(ctx, c.rollout, err)
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		return c.final(refusal)
	}
	return err
}

// final makes of a refusal that says "later" one that says no, where choices of the request are
// recorded: libraries ask again by themselves, and every time would leave more branches of them.
func (c *call) final(refusal *protocol.Refusal) *protocol.Refusal {
	if c.recorded == 0 || refusal.Code != protocol.CodeBusy && refusal.Code != protocol.CodeUnavailable {
		return refusal
	}
	return protocol.Refuse(protocol.CodeConflict, "%d of the %d choices are recorded, and the next failed: %s. Asked again, the request leaves more of them", c.recorded, c.req.choices, refusal.Message).With("recorded", c.recorded)
}

// unread is the error of a response that is recorded and whose text cannot be read. It does not say
// "later" either: a library would ask again by itself, and every time would leave another branch.
func (c *call) unread(err error) error {
	refusal, ok := errors.AsType[*protocol.Refusal](err)
	if !ok || refusal.Code != protocol.CodeBusy && refusal.Code != protocol.CodeUnavailable {
		return err
	}
	return protocol.Refuse(protocol.CodeConflict, "the response is recorded, and its text cannot be read: %s. Asked again, the request leaves another", refusal.Message).With("recorded", c.recorded)
}

// first notes the first token of the request.
func (c *call) first() {
	if c.waiting {
		c.waiting = false
		c.gateway.metrics.first(c.path, c.gateway.opt.Clock().Sub(c.began))
	}
}

// choice is one response of a request.
type choice struct {
	index int
	// key begins the names of its calls.
	key        historyKey
	transcript transcript
	scanner    *calls.Scanner
	reply      protocol.TurnReply
	// text, reasoning and calls are what it says, as the client was told. A call that is taken back stays
	// among them as broken.
	text, reasoning []byte
	calls           []toolCall
	hidden          bool
	finish          string
	// why its branch began, empty for one that went on.
	why        string
	overridden []string
}

func (c *call) newChoice(index int) *choice {
	ch := &choice{index: index, transcript: transcript{gateway: c.gateway}, hidden: c.req.hidden}
	if c.req.chat {
		ch.transcript.dialect = c.gateway.opt.Calls
	}
	if c.req.callable {
		history := c.prompt.history()
		ch.key = history.next(fmt.Append(nil, c.rollout, " ", index, " ", c.talk.times(history)))
	}
	ch.scanner = calls.NewScanner(ch.transcript.dialect, c.req.offered, c.req.callable)
	if ch.transcript.dialect.Thinks(c.prompt.tokens) {
		ch.scanner.Thinking()
	}
	return ch
}

// hear adds a part of a response to what the choice says. With last it is the end.
func (c *choice) hear(parts []part, last bool, s *calls.Out) {
	s.Reset()
	for _, p := range parts {
		if p.text == nil {
			c.scanner.Mark(p.mark, s)
		} else {
			c.scanner.Text(p.text, s)
		}
	}
	if last {
		c.scanner.Finish(c.reply.Finish == "stop", s)
	}
	c.text = append(c.text, s.Text...)
	c.reasoning = append(c.reasoning, s.Reasoning...)
	for i := range s.Deltas {
		c.note(&s.Deltas[i])
	}
}

// note adds what has become known of a call, and names one that the policy has not named.
func (c *choice) note(d *calls.Delta) {
	if d.Name != "" {
		if d.ID == "" {
			d.ID = c.key.call(len(c.calls))
		}
		c.calls = append(c.calls, toolCall{ID: d.ID, Type: "function", Function: calledByName{Name: d.Name}})
	}
	call := &c.calls[d.Index]
	call.Function.Arguments += string(d.Arguments)
	call.broken = call.broken || d.Broken
}

// called reports whether the choice calls a tool.
func (c *choice) called() bool {
	return slices.ContainsFunc(c.calls, func(call toolCall) bool { return !call.broken })
}

// end completes a choice whose turn has, and returns what that adds to what it says.
func (c *call) end(ctx context.Context, ch *choice, s *calls.Out) error {
	rest, err := ch.transcript.finish(ctx, &ch.reply)
	if err != nil {
		c.note(ch) // and nothing to go on from: what a client says in its place is not what was sampled
		return c.unread(err)
	}
	ch.hear(rest, true, s)
	switch {
	case ch.reply.Finish != "stop":
		ch.finish = "length"
	case ch.called():
		ch.finish = "tool_calls"
	default:
		ch.finish = "stop"
	}
	c.note(ch)
	if c.req.chat {
		c.talk.remember(c.prompt, &ch.reply, c.prompt.history(), ch.told())
	}
	return nil
}

// note counts a choice that is recorded.
func (c *call) note(ch *choice) {
	c.recorded++
	ch.why = c.talk.note(c.prompt, c.agent.name, ch.index, &ch.reply)
	ch.overridden = ch.reply.Overridden
	for _, name := range c.req.overridden {
		if !slices.Contains(ch.overridden, name) {
			ch.overridden = append(slices.Clip(ch.overridden), name)
		}
	}
	c.usage.add(len(ch.reply.Tokens))
	c.gateway.metrics.turn(c.prompt, ch)
	c.gateway.metrics.call(c.req.callable && c.gateway.opt.Calls != nil, ch.scanner.Counts())
	if f := c.gateway.noCall(); f != nil {
		c.gateway.mute.Do(func() { c.gateway.opt.Logf("gateway: %s", f.Message) })
	}
}

// whole answers in one piece.
func (c *call) whole(ctx context.Context, w http.ResponseWriter, id string, created int64) error {
	choices := make([]*choice, 0, c.req.choices)
	var overridden []string
	for i := range c.req.choices {
		ch := c.newChoice(i)
		var err error
		if ch.reply, err = c.turn(ctx, func(protocol.TurnDelta) {}); err != nil {
			return err
		}
		if err := c.end(ctx, ch, new(calls.Out)); err != nil {
			return err
		}
		choices = append(choices, ch)
		overridden = ch.overridden
	}
	if len(overridden) > 0 {
		w.Header().Set(samplingHeader, strings.Join(overridden, ", "))
	}
	writeJSON(w, c.reply(choices, id, created))
	return nil
}

// samplingHeader names the settings of a client that the run's took the place of.
const samplingHeader = "X-Headway-Sampling"
