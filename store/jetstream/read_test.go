package jetstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// lostReader is a reader of the client library to which the word is lost that the connection is back: a call waits until its caller
// ends it. The next one finds that the server is silent, and reads on.
type lostReader struct {
	jetstream.MessagesContext
	waited, dead bool
}

func (r *lostReader) Next(opts ...jetstream.NextOpt) (jetstream.Msg, error) {
	if r.waited && !r.dead {
		return &readMessage{}, nil
	}
	r.waited = true
	time.Sleep(silenceOfReader)
	return nil, context.DeadlineExceeded
}

type readMessage struct{ jetstream.Msg }

// TestReaderLooksAgain: a reader that waits for a word of the connection that is lost waits anew, and reads on.
func TestReaderLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if m, err := next(t.Context(), &lostReader{}); err != nil || m == nil {
			t.Errorf("read %v, %v, want a message", m, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := next(ctx, &lostReader{dead: true}); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("read until %v, want until its caller ends it", err)
		}
	})
}
