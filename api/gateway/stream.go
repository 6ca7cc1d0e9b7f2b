package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
)

// stream answers with events.
func (c *call) stream(ctx context.Context) error {
	for i := range c.req.choices {
		if err := c.streamChoice(ctx, c.newChoice(i)); err != nil {
			return err
		}
	}
	_ = c.events.done(c.usage) // a client that has left by now has missed nothing else
	return nil
}

// streamChoice samples one response and sends it as it comes. The turn runs beside this goroutine,
// and writes by itself while the client keeps up; it has ended when this returns.
func (c *call) streamChoice(client context.Context, ch *choice) error {
	ctx, cancel := context.WithCancel(client)
	w := newChoiceWriter(ctx, c, ch)
	ended := make(chan error, 1)
	go func() {
		var err error
		ch.reply, err = c.turn(ctx, w.arrived)
		ended <- err
	}()
	silence := time.NewTimer(c.gateway.opt.Heartbeat)
	defer silence.Stop()
	for {
		var err error
		select {
		case <-w.ready:
			err = w.catchUp()
		case <-silence.C:
			var next time.Duration
			next, err = w.heartbeat()
			silence.Reset(next)
		case err := <-ended:
			cancel()
			if err != nil {
				return err
			}
			reading, stop := c.lingering(client)
			defer stop()
			return w.end(reading)
		}
		if err != nil {
			cancel()
			return c.brokeOff(err, <-ended == nil)
		}
	}
}

// brokeOff is the error of a stream that could not be sent on: recorded says whether its response is. It says "later" only
// where nothing of the request is.
func (c *call) brokeOff(err error, recorded bool) error {
	if recorded {
		err = c.unread(err)
	} else if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		err = c.final(refusal)
	}
	return fmt.Errorf("gateway: the stream broke off: %w", err)
}

// lingerMax is how long the rest of a recorded response is read for a client that has left: longer than
// a tokenizer takes that answers at all, and one that does not must not hold the request for ever.
const lingerMax = 20 * time.Second

// lingering is the life of what is still to be done for a response that is recorded. It outlasts its
// client, so that the response can be gone on from: for lingerMax, and no longer than that matters.
func (c *call) lingering(client context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(client))
	forget := context.AfterFunc(client, func() {
		defer cancel()
		limit := time.NewTimer(lingerMax)
		defer limit.Stop()
		select {
		case <-limit.C:
		case <-c.talk.ended:
		case <-c.gateway.closing:
		case <-ctx.Done():
		}
	})
	return ctx, func() { forget(); cancel() }
}

// choiceWriter sends the events of one choice. What a turn brings is written by the goroutine that
// brings it, which spares an event the way over another one, as long as that waits for nothing: not
// for a client that reads slowly, and not for a server that is asked for the text of tokens. Else
// it is left to the goroutine of the request, and comes together where there is much of it.
type choiceWriter struct {
	call   *call
	choice *choice
	ctx    context.Context
	// free reports whether the connection takes an event at once; nil where nobody knows.
	free func() bool
	// ready holds a value while there is something to take, or broke is set.
	ready chan struct{}

	// pending is what has arrived and is not written yet.
	pendingMu sync.Mutex
	pending   piece

	// writing is held by whoever writes.
	writing sync.Mutex
	// room is how many tokens more the connection has room for, by what it said when last asked.
	room  int
	piece piece
	said  calls.Out
	// opened: its first event is out. named counts the tokens that were sent.
	opened bool
	named  int
	// broke is why the turn's goroutine could not write; nothing is written after it.
	broke  error
	sentAt time.Time
}

func newChoiceWriter(ctx context.Context, c *call, ch *choice) *choiceWriter {
	w := &choiceWriter{call: c, choice: ch, ctx: ctx, ready: make(chan struct{}, 1), sentAt: c.gateway.opt.Clock()}
	if to, ok := c.events.w.(Writable); ok {
		w.free = to.Writable
	}
	return w
}

// arrived is called by the turn, and does not wait for the client.
func (w *choiceWriter) arrived(d protocol.TurnDelta) {
	w.pendingMu.Lock()
	w.pending.add(d)
	for _, id := range d.Tokens {
		w.pending.marked = w.pending.marked || w.choice.transcript.dialect.Marks(id)
	}
	marked := w.pending.marked
	w.pendingMu.Unlock()
	if !marked && w.writeAtOnce(len(d.Tokens)) { // else the text before a word of the frame is asked for
		return
	}
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// tokensAtOnce is how many tokens a connection that has some room surely has room for, so that it is asked
// once for as many: a question costs as much as formatting an event does.
const tokensAtOnce = 16

// writeAtOnce writes what is pending if that waits for nothing, and reports whether it is done.
func (w *choiceWriter) writeAtOnce(tokens int) (done bool) {
	if w.free == nil || tokens > tokensAtOnce || !w.writing.TryLock() {
		return false
	}
	defer w.writing.Unlock()
	if w.broke != nil || !w.choice.transcript.begun || !w.hasRoom(tokens) {
		return false
	}
	defer func() {
		if thrown := recover(); thrown != nil {
			w.call.gateway.opt.Logf("gateway: defect: writing an event panicked: %v\n%s", thrown, debug.Stack())
			w.broke, done = protocol.Refuse(protocol.CodeInternal, "a defect of the server: its log has the place"), false
		}
	}()
	w.take()
	w.broke = w.send(w.ctx)
	return w.broke == nil
}

// hasRoom reports whether the connection has room for tokens, which are counted as written. w.writing must be held.
func (w *choiceWriter) hasRoom(tokens int) bool {
	if w.room < tokens {
		if !w.free() {
			w.room = 0
			return false
		}
		w.room = tokensAtOnce
	}
	w.room -= tokens
	return true
}

// catchUp writes what the turn's goroutine has left.
func (w *choiceWriter) catchUp() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.room = 0
	if w.broke != nil {
		return w.broke
	}
	w.take()
	return w.send(w.ctx)
}

// heartbeat writes a comment if nothing was written for as long as that takes, and returns when to
// look again.
func (w *choiceWriter) heartbeat() (time.Duration, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	every, now := w.call.gateway.opt.Heartbeat, w.call.gateway.opt.Clock()
	if quiet := now.Sub(w.sentAt); quiet < every || w.broke != nil {
		return every - quiet, w.broke
	}
	w.sentAt = now
	return every, w.call.events.heartbeat()
}

// take swaps what has arrived for the emptied slices of the piece before. w.writing must be held.
func (w *choiceWriter) take() {
	w.pendingMu.Lock()
	w.pending, w.piece = w.piece, w.pending
	w.pending.reset()
	w.pendingMu.Unlock()
}

func (w *choiceWriter) open() error {
	if w.opened {
		return nil
	}
	w.opened = true
	return w.call.events.choice(w.choice.index, w.call.prompt.tokens)
}

// send sends the piece that was taken. w.writing must be held.
func (w *choiceWriter) send(ctx context.Context) error {
	if w.piece.empty() {
		return nil
	}
	w.sentAt = w.call.gateway.opt.Clock()
	if err := w.open(); err != nil {
		return err
	}
	parts, err := w.choice.transcript.add(ctx, &w.piece)
	if err != nil {
		return err
	}
	w.choice.hear(parts, false, &w.said)
	return w.event()
}

func (w *choiceWriter) event() error {
	err := w.call.events.piece(&w.said, &w.piece)
	w.named += len(w.piece.tokens)
	return err
}

// end sends what has not been sent of a response that is complete. The turn is recorded: it is
// remembered, whether or not the client still listens.
func (w *choiceWriter) end(ctx context.Context) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	broke := w.broke
	if broke == nil {
		w.take()
		broke = w.send(ctx)
	}
	reply := &w.choice.reply
	w.piece.tokens, w.piece.logprobs = nil, nil
	if n := w.named; n < len(reply.Tokens) { // an engine that says all at the end
		w.piece.tokens, w.piece.logprobs = reply.Tokens[n:], reply.Logprobs[min(n, len(reply.Logprobs)):]
	}
	if err := w.call.end(ctx, w.choice, &w.said); err != nil {
		return err
	}
	if broke != nil {
		return w.call.brokeOff(broke, true)
	}
	if err := w.open(); err != nil {
		return err
	}
	if err := w.event(); err != nil {
		return err
	}
	return w.call.events.end(w.choice)
}

// piece is part of a response on its way to the client.
type piece struct {
	tokens   []int32
	logprobs []float32
	text     []byte
	// marked: one of the tokens is a word of the frame of calls.
	marked bool
}

func (p *piece) add(d protocol.TurnDelta) {
	p.tokens = append(p.tokens, d.Tokens...)
	p.logprobs = append(p.logprobs, d.Logprobs...)
	p.text = append(p.text, d.Text...)
}

func (p *piece) reset() {
	p.tokens, p.logprobs, p.text, p.marked = p.tokens[:0], p.logprobs[:0], p.text[:0], false
}

func (p *piece) empty() bool { return len(p.tokens)+len(p.text) == 0 }
