package vllm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/headway-rl/headway/engine/upstream"
)

// Decoder reads the stream of one response on the way that Probe has found.
func (Dialect) Decoder(r upstream.Request, caps *upstream.Capabilities) upstream.Decoder {
	if of(caps).generate {
		return &decoder{path: pathGenerate, media: len(r.Media) > 0, unnamed: r.Lora && !caps.VersionSpans}
	}
	return &decoder{path: pathCompletions}
}

type decoder struct {
	path  string
	event event
	// media: the request has some, and the server has not said yet where it has read them.
	media bool
	// unnamed: its spans have no label that an update has given, and one adapter samples the whole request.
	unnamed bool
}

// Event adds what an event brings. The shapes that come for every token are scanned without
// reflection, all others are left to encoding/json.
func (d *decoder) Event(data []byte, into *upstream.Delta) error {
	e := &d.event
	if d.media || !e.scan(data) { // the scanner looks for no prompt
		if err := e.parse(data); err != nil {
			return fmt.Errorf("%s: an event that is not understood: %w: %w", d.path, err, upstream.Excerpt(data))
		}
	}
	if e.refused != nil {
		return e.refused.error(d.path)
	}
	if err := e.agree(); err != nil {
		return fmt.Errorf("%w: %s: %w: %w", upstream.ErrLied, d.path, err, upstream.Excerpt(data))
	}
	finish, err := finishOf(e.finish)
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if d.media && e.expanded != nil {
		into.Expanded, d.media = e.expanded, false
	}
	into.Tokens = append(into.Tokens, e.tokens...)
	into.Logprobs = append(into.Logprobs, e.logprobs...)
	if len(e.text) > 0 {
		into.Text += string(e.text)
	}
	into.MaskLengths, into.MaskIDs = append(into.MaskLengths, e.lengths...), append(into.MaskIDs, e.ids...)
	if finish != "" {
		into.Finish = finish
	}
	if d.unnamed {
		return nil
	}
	for _, s := range e.spans {
		into.Spans = append(into.Spans, upstream.Span{Label: s.Version, Start: s.Start, End: s.End})
	}
	return nil
}

// agree brings tokens and log-probs to one length: a token without a log-prob gets one that
// stands for none, and ids that stand only beside the log-probs are the tokens.
func (e *event) agree() error {
	if len(e.tokens) == 0 {
		e.tokens = append(e.tokens, e.named...)
	}
	if len(e.logprobs) > len(e.tokens) {
		return fmt.Errorf("%d log-probs for %d tokens", len(e.logprobs), len(e.tokens))
	}
	if len(e.named) == len(e.tokens) {
		for i, id := range e.named {
			if id != e.tokens[i] {
				return fmt.Errorf("token %d is %d and its log-prob is that of %d", i, e.tokens[i], id)
			}
		}
	}
	for len(e.logprobs) < len(e.tokens) {
		e.logprobs = append(e.logprobs, missing)
	}
	return nil
}

// finishOf is the server's word for why a response has ended.
func finishOf(word []byte) (upstream.Finish, error) {
	switch string(word) {
	case "":
		return "", nil
	case "stop", "repetition": // the latter is a stop that a model's own settings ask for
		return upstream.FinishStop, nil
	case "length":
		return upstream.FinishLength, nil
	case "abort":
		return upstream.FinishAbort, nil
	}
	return "", fmt.Errorf("the response has ended with %.40q, which is none of stop, length, abort", word)
}

// error is what stands in a stream as the reply that it would have been, had it come earlier.
func (r *refusal) error(path string) error {
	var code int
	if json.Unmarshal(r.Code, &code) != nil || code == 0 {
		code = http.StatusInternalServerError
	}
	message := cmp.Or(r.Message, r.Type)
	err := &upstream.StatusError{Path: path, Status: code, Message: message}
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return err
	}
	if code/100 == 4 { // it will be no better the next time
		return fmt.Errorf("%w: %w", upstream.ErrRefused, err)
	}
	return err
}
