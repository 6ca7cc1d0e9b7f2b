package sglang

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
)

// Decoder implements [upstream.Dialect].
func (*Dialect) Decoder(upstream.Request, *upstream.Capabilities) upstream.Decoder { return &decoder{} }

// decoder reads one stream. Events that bring tokens are read without allocating; the last one and
// whatever looks unusual are left to encoding/json.
type decoder struct {
	// tokens and text are how much of each has been seen, in tokens and bytes.
	tokens, text int
	buffer       []byte // the text of an event with escapes
}

// Event implements [upstream.Decoder].
func (d *decoder) Event(data []byte, into *upstream.Delta) error {
	if d.scan(data, into) {
		return nil
	}
	return d.parse(data, into)
}

// fresh says how many of an event's n log-probs have been seen before, given how many tokens the
// server says that it has sampled: cumulative events repeat all, incremental ones none. An aborted
// stream of the second kind may end with an event of the first.
func (d *decoder) fresh(n, sampled int) (seen int, repeats bool, err error) {
	switch {
	case n == sampled && n >= d.tokens:
		return d.tokens, d.tokens > 0, nil
	case d.tokens+n == sampled:
		return 0, false, nil
	}
	return 0, false, fmt.Errorf("%w: after %d tokens an event with %d log-probs says that there are %d tokens", upstream.ErrLied, d.tokens, n, sampled)
}

// common is what the scanner looks at of an event.
type common struct {
	text          []byte // between the quotes
	plain, texted bool
	logprobs      upstream.Scanner // before the list
	count         int              // its entries
	sampled       int32
	masks         upstream.Scanner // before the list
	masked        int              // its entries
	drawn         upstream.Scanner // log-probs over what masks kept, before the list
	weighed       int              // its entries
	seen          [6]bool          // by field: a second one is left to encoding/json
}

// Fields of an event that the scanner knows.
const (
	fieldText = iota
	fieldMeta
	fieldLogprobs
	fieldSampled
	fieldMasks
	fieldDrawn
)

// once notes a field, and reports whether it is the first of its name.
func (e *common) once(field int) bool {
	first := !e.seen[field]
	e.seen[field] = true
	return first
}

// scan reads an event of the usual form that does not end the response. Where it reports false
// nothing has been taken from it.
func (d *decoder) scan(data []byte, into *upstream.Delta) bool {
	c, e := upstream.Scan(data), common{}
	if !e.event(&c) || !c.End() || !e.seen[fieldLogprobs] || !e.seen[fieldSampled] {
		return false
	}
	seen, repeats, err := d.fresh(e.count, int(e.sampled))
	if err != nil {
		return false
	}
	text, ok := e.text, true
	if e.texted {
		if text, ok = upstream.Unquote(d.buffer[:0], e.text, e.plain); !ok {
			return false
		}
		d.buffer = text
	}
	tokens, logprobs, lengths, ids := len(into.Tokens), len(into.Logprobs), len(into.MaskLengths), len(into.MaskIDs)
	if !entries(&e.logprobs, seen, into) {
		into.Tokens, into.Logprobs = into.Tokens[:tokens], into.Logprobs[:logprobs]
		return false
	}
	if skip, ok := maskSeen(e.masked, e.count, seen, int(e.sampled), d.tokens); ok && !masks(&e.masks, skip, into) {
		into.Tokens, into.Logprobs = into.Tokens[:tokens], into.Logprobs[:logprobs]
		return false
	}
	if skip, ok := maskSeen(e.weighed, e.count, seen, int(e.sampled), d.tokens); ok && !drawn(&e.drawn, skip, into.Logprobs[logprobs:]) {
		into.Tokens, into.Logprobs = into.Tokens[:tokens], into.Logprobs[:logprobs]
		into.MaskLengths, into.MaskIDs = into.MaskLengths[:lengths], into.MaskIDs[:ids]
		return false
	}
	d.advance(len(into.Tokens)-tokens, text, repeats, into)
	return true
}

// advance notes what has been seen, and adds the text that is new.
func (d *decoder) advance(tokens int, text []byte, repeats bool, into *upstream.Delta) {
	d.tokens += tokens
	if repeats {
		// A stop string at the end of what was shown is taken back: there is nothing new then.
		text = text[min(d.text, len(text)):]
	}
	d.text += len(text)
	if len(text) > 0 {
		into.Text += string(text)
	}
}

// event goes over an event and finds its parts.
func (e *common) event(c *upstream.Scanner) bool {
	return c.Object(func(name []byte) bool {
		switch string(name) {
		case "text":
			if c.Null() {
				return e.once(fieldText)
			}
			e.text, e.plain, e.texted = c.Quoted()
			return e.texted && e.once(fieldText)
		case "meta_info":
			return e.once(fieldMeta) && e.meta(c)
		case "error":
			return false
		}
		return c.Value()
	})
}

// meta goes over the meta_info of an event.
func (e *common) meta(c *upstream.Scanner) bool {
	return c.Object(func(name []byte) (ok bool) {
		switch string(name) {
		case "finish_reason", "weight_versions": // the last event has them, and is left to encoding/json
			return c.Null()
		case "completion_tokens":
			e.sampled, ok = c.Integer()
			return ok && e.once(fieldSampled)
		case "output_token_logprobs":
			e.logprobs = *c
			return e.once(fieldLogprobs) && c.List(func() bool {
				e.count++
				return c.Value()
			})
		case "output_token_sampling_mask":
			if c.Null() {
				return e.once(fieldMasks)
			}
			e.masks = *c
			return e.once(fieldMasks) && c.List(func() bool {
				e.masked++
				return c.Value()
			})
		case "output_token_sampling_logprobs":
			if c.Null() {
				return e.once(fieldDrawn)
			}
			e.drawn = *c
			return e.once(fieldDrawn) && c.List(func() bool {
				e.weighed++
				return c.Value()
			})
		}
		return c.Value()
	})
}

// entries reads a list of [log-prob, id, …] from its entry number seen on. It has been gone over before.
func entries(c *upstream.Scanner, seen int, into *upstream.Delta) bool {
	at := 0
	return c.List(func() bool {
		if at++; at <= seen {
			return c.Value()
		}
		logprob := math.NaN()
		if !c.Skip('[') {
			return false
		}
		if !c.Null() {
			p, ok := c.Float(64)
			if !ok {
				return false
			}
			logprob = p
		}
		if !c.Skip(',') {
			return false
		}
		id, ok := c.Integer()
		for ok && c.Skip(',') {
			ok = c.Value()
		}
		into.Tokens, into.Logprobs = append(into.Tokens, id), append(into.Logprobs, float32(logprob))
		return ok && c.Skip(']')
	})
}

// parse reads any event.
func (d *decoder) parse(data []byte, into *upstream.Delta) error {
	var event map[string]json.RawMessage
	if err := json.Unmarshal(data, &event); err != nil {
		return fmt.Errorf("an event that is not understood: %w: %w", err, upstream.Excerpt(data))
	}
	if problem, ok := event["error"]; ok {
		return streamError(problem)
	}
	var meta map[string]json.RawMessage
	var text string
	if err := errors.Join(field(event, "meta_info", &meta), field(event, "text", &text)); err != nil {
		return fmt.Errorf("an event that is not understood: %w", err)
	}
	if meta == nil {
		return fmt.Errorf("an event without meta_info: %w", upstream.Excerpt(data))
	}
	var reason *finishReason
	var entries [][]json.RawMessage
	var spans []versionSpan
	sampled := d.tokens // an abort of what has not begun may leave it out
	err := errors.Join(field(meta, "finish_reason", &reason), field(meta, "output_token_logprobs", &entries),
		field(meta, "weight_versions", &spans), field(meta, "completion_tokens", &sampled))
	if err != nil {
		return fmt.Errorf("an event that is not understood: %w", err)
	}
	if _, ok := meta["output_token_logprobs"]; !ok && sampled > d.tokens {
		return fmt.Errorf("%w: %d tokens came without output_token_logprobs", upstream.ErrLied, sampled-d.tokens)
	}
	finish, err := reason.finish()
	if err == nil && sampled == 0 {
		err = reason.full()
	}
	if err != nil {
		return err
	}
	seen, repeats, err := d.fresh(len(entries), sampled)
	if err != nil {
		return err
	}
	before := len(into.Tokens)
	into.Tokens, into.Logprobs = slices.Grow(into.Tokens, len(entries)-seen), slices.Grow(into.Logprobs, len(entries)-seen)
	for _, entry := range entries[seen:] {
		if err := readEntry(entry, into); err != nil {
			into.Tokens, into.Logprobs = into.Tokens[:before], into.Logprobs[:before]
			return err
		}
	}
	readMasks(meta["output_token_sampling_mask"], len(entries), seen, sampled, d.tokens, into)
	readDrawn(meta["output_token_sampling_logprobs"], len(entries), seen, sampled, d.tokens, into.Logprobs[before:])
	d.advance(len(into.Tokens)-before, []byte(text), repeats, into)
	if finish != "" {
		into.Finish = finish
	}
	for _, s := range spans {
		if s.Start != s.End { // of a response without tokens
			into.Spans = append(into.Spans, upstream.Span{Label: s.Version, Start: s.Start, End: s.End})
		}
	}
	return nil
}

// versionSpan is a stretch of tokens as SGLang writes it.
type versionSpan struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// field reads one field of an object, if it is there.
func field(object map[string]json.RawMessage, name string, value any) error {
	text, ok := object[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("%s: %w: %w", name, err, upstream.Excerpt(text))
	}
	return nil
}

// readEntry reads one [log-prob, id, …].
func readEntry(entry []json.RawMessage, into *upstream.Delta) error {
	if len(entry) < 2 {
		return fmt.Errorf("an entry of output_token_logprobs has %d parts, want a log-prob and an id", len(entry))
	}
	var logprob *float64
	var id *int32
	if err := errors.Join(json.Unmarshal(entry[0], &logprob), json.Unmarshal(entry[1], &id)); err != nil {
		return fmt.Errorf("an entry of output_token_logprobs: %w", err)
	}
	if id == nil {
		return fmt.Errorf("%w: a token without an id", upstream.ErrLied)
	}
	p := math.NaN() // of one that has none
	if logprob != nil {
		p = *logprob
	}
	into.Tokens, into.Logprobs = append(into.Tokens, *id), append(into.Logprobs, float32(p))
	return nil
}

// finishReason is why a response ended. Servers that speak SGLang have it as a word, too.
type finishReason struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Status  *int   `json:"status_code"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *finishReason) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, &f.Type)
	}
	type plain finishReason
	return json.Unmarshal(text, (*plain)(f))
}

// finish translates it; an abort that says that the request is at fault is an error.
func (f *finishReason) finish() (upstream.Finish, error) {
	if f == nil {
		return "", nil
	}
	switch f.Type {
	case "stop":
		return upstream.FinishStop, nil
	case "length":
		return upstream.FinishLength, nil
	case "abort":
		if f.Status != nil && *f.Status == http.StatusBadRequest {
			return "", fmt.Errorf("%w: %s", upstream.ErrRefused, upstream.Said(f.Message))
		}
		return upstream.FinishAbort, nil
	}
	return "", fmt.Errorf("%w: it ends by %.40q", upstream.ErrLied, f.Type)
}

// fullPause is how long a server is left alone that had no room for a request.
const fullPause = time.Second

// full is the error of a request that the server has not taken: its queue is full (--max-queued-requests), or the
// request has waited there for too long. It says so inside a stream of status 200, and that it is well.
func (f *finishReason) full() error {
	if f == nil || f.Type != "abort" || f.Status == nil || *f.Status != http.StatusServiceUnavailable {
		return nil
	}
	return &upstream.StatusError{Path: "/generate", Status: *f.Status, Message: f.Message, After: fullPause}
}

// streamError is an error that came inside a stream, under HTTP 200.
func streamError(text json.RawMessage) error {
	var problem struct {
		Message string `json:"message"`
		Code    any    `json:"code"`
	}
	if json.Unmarshal(text, &problem) != nil || problem.Message == "" {
		return fmt.Errorf("the stream says: %.500s", text)
	}
	if code, ok := problem.Code.(float64); ok && code == http.StatusBadRequest {
		return fmt.Errorf("%w: %s", upstream.ErrRefused, upstream.Said(problem.Message))
	}
	return fmt.Errorf("the stream says: %s", upstream.Said(problem.Message))
}
