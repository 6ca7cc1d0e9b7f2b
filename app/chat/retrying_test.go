package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/upstream"
)

// failingTemplate fails until a time, and renders then.
type failingTemplate struct {
	until time.Time
	err   error
	asked int
}

func (f *failingTemplate) Render(context.Context, []byte, []byte, bool) ([]int32, error) {
	f.asked++
	if time.Now().Before(f.until) {
		return nil, f.err
	}
	return []int32{7}, nil
}

func (f *failingTemplate) Encode(ctx context.Context, _ string) ([]int32, error) {
	return f.Render(ctx, nil, nil, false)
}

func (f *failingTemplate) Decode(ctx context.Context, _ []int32) (string, error) {
	tokens, err := f.Render(ctx, nil, nil, false)
	return fmt.Sprint(tokens), err
}

// What no server renders is held until one does or the wait is over; what a server answers is not.
func TestRetryingTemplate(t *testing.T) {
	refused := &url.Error{Op: "Post", URL: "http://127.0.0.1:1/tokenize", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		down time.Duration
		err  error
		// held is whether it is asked again; code is what the client is told, empty where it is rendered.
		held bool
		code protocol.Code
	}{
		"a server that starts again":   {3 * time.Minute, fmt.Errorf("no engine renders: %w", errors.Join(upstream.ErrLacking, refused)), true, ""},
		"a server that is gone":        {time.Hour, refused, true, protocol.CodeUnavailable},
		"a server that is not up":      {time.Minute, &upstream.StatusError{Path: "/tokenize", Status: 503}, true, ""},
		"a reply that breaks off":      {time.Minute, fmt.Errorf("reply broke off: %w", io.ErrUnexpectedEOF), true, ""},
		"a server that breaks":         {time.Minute, &upstream.StatusError{Path: "/tokenize", Status: 500}, false, ""},
		"a mistake of the client's":    {time.Minute, protocol.Refuse(protocol.CodeInvalid, "roles must alternate"), false, protocol.CodeInvalid},
		"servers that never render":    {time.Minute, upstream.ErrLacking, false, ""},
		"a server that asks who it is": {time.Minute, &upstream.StatusError{Path: "/tokenize", Status: 401}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, silent := &failingTemplate{until: time.Now().Add(c.down), err: c.err}, 0
				template := retryingTemplate{inner, 10 * time.Minute, func() { silent++ }}
				began := time.Now()
				tokens, err := template.Render(t.Context(), nil, nil, true)
				took := time.Since(began)
				refusal, _ := errors.AsType[*protocol.Refusal](err)
				switch {
				case !c.held && (took != 0 || inner.asked != 1 || silent != 0 || err == nil):
					t.Errorf("asked %d times in %v, silent %d times: %v", inner.asked, took, silent, err)
				case c.held && c.code == "" && (err != nil || took < c.down || took > c.down+renderAgainMost || !slices.Equal(tokens, []int32{7})):
					t.Errorf("%v after %v: %v", tokens, took, err)
				case c.held && (silent == 0 || silent > int(took/renderAgainMost)+10):
					t.Errorf("told %d times in %v that nobody answers", silent, took)
				case c.code != "" && (refusal == nil || refusal.Code != c.code):
					t.Errorf("the client is told %v, want %s", err, c.code)
				}
			})
		})
	}
}

// Who leaves is not waited for, and the other questions are held as well.
func TestRetryingTemplateLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &failingTemplate{until: time.Now().Add(time.Minute), err: io.EOF}
		template := retryingTemplate{inner, 10 * time.Minute, func() {}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := template.Encode(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who left is told %v", err)
		}
		if text, err := template.Decode(t.Context(), []int32{1}); err != nil || text != "[7]" {
			t.Errorf("%q, %v", text, err)
		}
	})
}
