package chat

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// Pauses between two attempts to have a chat rendered while no server answers.
const (
	renderAgain     = 100 * time.Millisecond
	renderAgainMost = 2 * time.Second
)

// retryingTemplate holds what no server renders at the moment, as a response is held that no engine
// samples: agents' libraries give up within seconds, and a server is back within minutes.
type retryingTemplate struct {
	inner gateway.Templates
	// wait is how long a chat is held; silent is told that servers do not answer, and must not block.
	wait   time.Duration
	silent func()
}

// Render implements gateway.Templates.
func (t retryingTemplate) Render(ctx context.Context, messages, tools []byte, generation bool) ([]int32, error) {
	return held(ctx, t, func() ([]int32, error) { return t.inner.Render(ctx, messages, tools, generation) })
}

// Encode implements gateway.Templates.
func (t retryingTemplate) Encode(ctx context.Context, text string) ([]int32, error) {
	return held(ctx, t, func() ([]int32, error) { return t.inner.Encode(ctx, text) })
}

// Decode implements gateway.Templates.
func (t retryingTemplate) Decode(ctx context.Context, tokens []int32) (string, error) {
	return held(ctx, t, func() (string, error) { return t.inner.Decode(ctx, tokens) })
}

// sight is what See returns.
type sight struct {
	pad int32
	by  media.Processor
}

// See implements gateway.Seer.
func (t retryingTemplate) See(ctx context.Context, modality string) (int32, media.Processor, error) {
	seer, ok := t.inner.(gateway.Seer)
	if !ok {
		return 0, media.Processor{}, protocol.Refuse(protocol.CodeInvalid, "the chat has an image, and nothing here renders any").With("field", "messages")
	}
	got, err := held(ctx, t, func() (got sight, err error) {
		got.pad, got.by, err = seer.See(ctx, modality)
		return got, err
	})
	return got.pad, got.by, err
}

// held asks until a server answers, whatever it says, or t.wait is over.
func held[T any](ctx context.Context, t retryingTemplate, ask func() (T, error)) (T, error) {
	limit := time.NewTimer(t.wait)
	defer limit.Stop()
	for pause := renderAgain; ; pause = min(2*pause, renderAgainMost) {
		got, err := ask()
		if err == nil || ctx.Err() != nil || !unanswered(err) {
			return got, err
		}
		t.silent()
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-limit.C:
			again.Stop()
			return got, protocol.Refuse(protocol.CodeUnavailable, "no server has rendered it for %s: %v. Nothing was sampled; send it again", t.wait, err).With("wait_s", t.wait.Seconds())
		case <-ctx.Done():
			again.Stop()
			return got, ctx.Err()
		}
	}
}

// unanswered reports whether an error is of a server that cannot be reached or is not up, so that it
// may answer later. A server's own words are an answer.
func unanswered(err error) bool {
	switch status := upstream.StatusOf(err); status {
	case 0:
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
	if _, refused := errors.AsType[*protocol.Refusal](err); refused {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, port.ErrEngineDown)
}
