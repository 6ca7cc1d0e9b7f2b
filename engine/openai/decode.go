package openai

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/headway-rl/headway/engine/upstream"
)

// completion is a reply, or one event of a stream.
type completion struct {
	Choices []struct {
		Text   string `json:"text"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Error *struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
	} `json:"error"`
}

// Decoder reads the text of a completion.
func (Dialect) Decoder(upstream.Request, *upstream.Capabilities) upstream.Decoder { return decoder{} }

type decoder struct{}

// Event adds the text of an event; there are no tokens in any.
func (decoder) Event(data []byte, d *upstream.Delta) error {
	var c completion
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%s: an event that is not understood: %w: %w", pathCompletions, err, upstream.Excerpt(data))
	}
	if c.Error != nil {
		err := &upstream.StatusError{Path: pathCompletions, Status: http.StatusInternalServerError, Message: c.Error.Message}
		var code int
		if json.Unmarshal(c.Error.Code, &code) == nil && code >= 400 && code < 600 {
			err.Status = code
		}
		return err
	}
	if len(c.Choices) == 0 {
		return nil
	}
	d.Text += c.Choices[0].Text
	switch finish := c.Choices[0].Finish; finish {
	case "":
	case "stop", "content_filter":
		d.Finish = upstream.FinishStop
	case "length":
		d.Finish = upstream.FinishLength
	case "abort":
		d.Finish = upstream.FinishAbort
	default:
		return fmt.Errorf("%s: the response has ended with %.40q, which is none of stop, length, content_filter", pathCompletions, finish)
	}
	return nil
}
