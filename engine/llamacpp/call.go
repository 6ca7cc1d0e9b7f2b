package llamacpp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/headway-rl/headway/engine/upstream"
)

// replyBytesMax bounds a reply that is read as a whole.
const replyBytesMax = 64 << 20

// repeatable has net/http send a request once more where the server has closed a connection just
// when it was used again, as llama-server does after a hundred requests: nothing of it was answered.
// An empty value is not sent.
func repeatable() http.Header { return http.Header{"X-Idempotency-Key": {}} }

// post sends a request that changes nothing at the server.
func post(ctx context.Context, s *upstream.Server, path string, body, reply any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	content, err := s.Open(ctx, http.MethodPost, upstream.Call{Path: path, Body: text, Header: repeatable()})
	if err != nil {
		return err
	}
	defer content.Close()
	if text, err = io.ReadAll(io.LimitReader(content, replyBytesMax)); err != nil {
		return &url.Error{Op: "the reply to POST", URL: s.URL() + path, Err: fmt.Errorf("it broke off: %w", err)}
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("%s answers something that is not understood: %w: %.200q", path, err, text)
	}
	return nil
}
