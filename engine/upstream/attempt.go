package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
)

// Limits in time that nobody needs to set.
const (
	// probeLimit bounds what is asked of a server beside sampling and updates, abortLimit an abort,
	// questionLimit each of the many questions about what it can: some are slow the first time.
	probeLimit    = 20 * time.Second
	questionLimit = time.Minute
	abortLimit    = 5 * time.Second
	// graceLimit is how long a response may take to end after it was aborted by its id, where the
	// server then names the versions of its tokens; drainLimit how long a stream may stay open after
	// its end mark; cutLimit how long a switch waits for responses that it has cut off.
	graceLimit = time.Second
	drainLimit = 250 * time.Millisecond
	cutLimit   = 5 * time.Second
)

// endMark is the data of the event that ends a stream.
const endMark = "[DONE]"

// broken is wrapped by the error of a call that can be made again with what there is.
type broken struct {
	cause error
	// transport: the connection failed, so that the server may be another one by now.
	transport bool
	// silent: it was waited for long, and is not as often.
	silent bool
}

func (b *broken) Error() string { return b.cause.Error() }
func (b *broken) Unwrap() error { return b.cause }

// call is one request of a response on its way.
type call struct {
	e       *Engine
	r       *response
	s       *stream
	request Request
	body    io.ReadCloser
	// connected: the request has a connection; refused: the server has answered that it will not.
	connected, refused atomic.Bool
	regular            bool         // the stream came to its end mark
	seen               bool         // the server has said that it has read the media
	counted            loop.Version // what the tokens that arrived last count as, at first those to come
	side               *side        // nil where no side channel is asked for
}

// attempt asks the server for the rest of a response once. It returns nil when the response is
// complete or pruned, a *halt where it was ended from this side, a *broken where it can be tried
// again, ctx's error, and any other error where it is of no use to go on.
func (e *Engine) attempt(ctx context.Context, r *response) error {
	s, err := e.enterRead(ctx, r)
	if err != nil {
		return err
	}
	if err := e.fit(r, s.caps); err != nil || r.full() {
		e.leave(s)
		return err
	}
	c := &call{e: e, r: r, s: s, request: e.request(r, s), counted: loop.Version(s.version.Load())}
	s.id = c.request.ID
	if c.side = c.newSide(); c.side != nil {
		defer c.side.close()
	}
	r.begin()
	// The watcher ends the stream's context: after the reader, which it may have to wake.
	inner, cancel := context.WithCancel(ctx)
	if !e.spawn(func() { c.watch(inner, cancel) }) {
		cancel()
		e.leave(s) // which nobody watches
		return haltClosed
	}
	err = e.judgeAdapter(ctx, c.run(inner))
	doubt := e.trust(ctx, s)
	close(s.gone)
	if doubt != nil {
		r.undo()
		return doubt
	}
	err = c.ended(ctx, err)
	if c.side != nil && (err == nil || cutOff(err) || err == ctx.Err()) {
		c.side.keep()
	}
	return err
}

// request is what the server is asked for next.
func (e *Engine) request(r *response, s *stream) Request {
	q := Request{
		ID: requestID(e.nonce, &r.req, e.calls.Add(1)), Session: sessionID(e.nonce, r.req.Rollout),
		Prompt: r.req.Prompt, Media: r.req.Media, MaxTokens: r.max - len(r.tokens), Sampling: r.sampling, Lora: e.opt.Delivery == DeliveryLora,
	}
	if len(r.tokens) > 0 {
		q.Prompt = append(append(make([]int32, 0, len(q.Prompt)+len(r.tokens)), q.Prompt...), r.tokens...)
	}
	if e.opt.Cache == CacheSalt && s.caps.Salt {
		q.Salt = s.label
	}
	for i := range s.caps.Channels {
		name := s.caps.Channels[i].Name
		if name != channel.SamplingMask || q.Sampling.TopK > 0 && q.Sampling.Temperature > 0 { // others have no bounded mask
			q.Channels = append(q.Channels, name)
		}
		q.Known = min(max(r.known, 0), len(q.Prompt))
	}
	return q
}

// run sends the request and reads the stream.
func (c *call) run(ctx context.Context) error {
	wire, err := c.e.opt.Dialect.Generate(c.request, c.s.caps)
	if err != nil {
		return err
	}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) }})
	c.body, err = c.e.opt.Server.Open(traced, http.MethodPost, wire)
	if err != nil {
		c.refused.Store(StatusOf(err) != 0)
		return c.opening(ctx, err)
	}
	if err := c.e.recognise(ctx); err != nil {
		return err
	}
	return c.read(ctx)
}

// opening judges the error of a request that brought no stream. Another server than the one that was
// switched may have answered: what that one refuses says nothing of the response.
func (c *call) opening(ctx context.Context, err error) error {
	status := StatusOf(err)
	switch {
	case status == 0:
		return &broken{cause: err, transport: true}
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return &broken{cause: err}
	}
	other := ofServer(status)
	if other {
		c.e.recognised.Store(0) // it is asked, whatever it has said before
	}
	if err := c.e.recognise(ctx); err != nil {
		return err
	}
	switch {
	case !other || c.e.names():
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case c.e.holding():
		return &broken{cause: err}
	}
	return c.e.lose(fmt.Errorf("it is another server, or was set up anew: %w", err))
}

// ofServer reports whether a status is about the server, its key or its model, whatever was asked.
func ofServer(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// tellMost is how many tokens are told of together at most, where the server has sent them faster than they were read.
const tellMost = 16

// read records the events of the stream until its end, or until it is to end. Tokens are told of as soon as no other event has
// arrived whole.
func (c *call) read(ctx context.Context) error {
	defer c.r.tell()
	body := io.Reader(c.body)
	if c.side != nil {
		body = c.side.read(ctx, body)
	}
	events := NewEventReader(body, &c.request)
	decoder := c.e.opt.Dialect.Decoder(c.request, c.s.caps)
	vocabulary := c.e.vocabulary(c.s.caps)
	var d Delta
	for {
		data, err := events.Next()
		if errors.Is(err, ErrLied) {
			return err
		}
		if err != nil {
			return reading(c.e.quoted(err))
		}
		if string(data) == endMark {
			c.regular = true
			return nil
		}
		if !c.wanted() {
			return nil
		}
		d.reset()
		if err := c.e.quoted(cutShort(decoder.Event(data, &d))); err != nil {
			if errors.Is(err, ErrRefused) || errors.Is(err, ErrLied) {
				return err
			}
			return &broken{cause: err}
		}
		if err := c.take(&d, vocabulary); err != nil {
			return err
		}
		if len(c.r.tokens)-c.r.heard >= tellMost || !events.Arrived() {
			c.r.tell()
		}
		if d.Finish != "" && c.s.caps.Unmarked {
			c.regular = true
			return nil
		}
	}
}

// reading judges the error of a stream that broke off. A regular end of the connection without the
// end mark is the server's doing; it lives on.
func reading(err error) error {
	if errors.Is(err, io.EOF) {
		return &broken{cause: fmt.Errorf("the stream ends without %s", endMark)}
	}
	return &broken{cause: fmt.Errorf("the stream broke off: %w", err), transport: true}
}

// wanted waits at the gate and reports whether what arrives is to be recorded.
func (c *call) wanted() bool {
	if g := c.e.gate.Load(); g != nil {
		c.r.tell() // of what came before
		select {
		case <-g.open:
			if g.failed {
				return false
			}
		case <-c.s.halting:
			return false // what arrives is of weights that nobody has verified yet
		}
	}
	why := c.s.halted.Load()
	return why == nil || c.s.caps.VersionSpans && (why == haltInterrupt || why == haltPruned || why == haltCut)
}

// take records what an event has brought.
func (c *call) take(d *Delta, vocabulary int) error {
	if len(d.Tokens) > 0 {
		now := c.e.now()
		c.s.lastAt.Store(now)
		c.e.arrivedAt.Store(now)
	}
	if err := c.look(d); err != nil {
		return err
	}
	before, version := len(c.r.tokens), loop.Version(c.s.version.Load())
	if len(d.Tokens) > 1 && version != c.counted && !c.s.caps.VersionSpans { // the first may have been held back through the switch
		c.s.stop(haltCut)
		return haltCut
	}
	if len(d.Tokens) > 0 {
		c.counted = version
	}
	err := c.r.take(d, version, vocabulary)
	if err != nil {
		return err
	}
	if c.side != nil {
		c.side.take(d)
	}
	if n := len(c.r.tokens) - before; n > 0 {
		c.e.counts.tokens.Add(int64(n))
		c.e.recordedAt.Store(c.e.now())
	}
	if c.r.pruned || c.r.stopped {
		c.s.stop(haltPruned)
	}
	return nil
}

// ended judges a call that is over, and settles which versions have sampled its tokens.
func (c *call) ended(ctx context.Context, err error) error {
	r, why := c.r, c.s.halted.Load()
	if settled := r.close(c.e, c.regular, why != nil, len(c.request.Prompt)); settled != nil {
		return c.unsettled(settled)
	}
	room := c.s.caps.Context - c.s.caps.Spare - len(c.request.Prompt) // left to the call; meaningless without a context
	switch complete := c.regular && (r.finish == FinishStop || r.finish == FinishLength); {
	case r.pruned, r.stopped:
		return nil
	case complete && r.finish == FinishLength && r.sampled < min(c.request.MaxTokens, room):
		return fmt.Errorf("%w: it ends by length after %d tokens, %d were asked for and the context has %d: it has its own limit",
			ErrLied, r.sampled, c.request.MaxTokens, room)
	case complete && len(r.tokens) > 0:
		return nil
	case complete:
		return fmt.Errorf("%w: a response without a token, which ends by %s", ErrLied, r.finish)
	case ctx.Err() != nil:
		return ctx.Err()
	case why == haltSilent:
		return &broken{silent: true, cause: fmt.Errorf("it brought no token for %v", c.e.opt.Silent)}
	case why != nil:
		return why
	case err != nil:
		return err
	case r.finish == FinishAbort:
		return &broken{cause: errors.New("the server cut the response off")}
	}
	return fmt.Errorf("%w: the stream ends with %s and without a reason, so that the response may be incomplete", ErrLied, endMark)
}

// unsettled judges a call of whose tokens nobody knows what sampled them. Where weights did that
// nobody put there from here, the server is another one by now: the response goes on elsewhere
// without them, unless somebody has been told of them already.
func (c *call) unsettled(settled error) error {
	if !errors.Is(settled, errUnknownLabel) {
		return settled
	}
	lost := c.e.lose(fmt.Errorf("its weights are unknown: %w", settled))
	if c.r.told && c.r.req.OnTokens != nil {
		return settled
	}
	c.r.undo()
	return lost
}
