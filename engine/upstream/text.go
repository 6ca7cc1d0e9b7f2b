package upstream

import (
	"bytes"
	"context"
	"strings"

	"github.com/headway-rl/headway/loop/port"
)

// unread is what stands for a character that is not complete yet.
const unread = "\uFFFD"

// readTries is how many servers, or versions of one, are asked in a row for the text that a response
// lacks: switches come between, each of which may be why the one before has not answered.
const readTries = 3

// enterRead enters, and sees to it that the response then lacks no text which the server can read: it
// is asked only when it may be sampled from again, for through a switch it may not answer, or not be
// there. No stream is registered meanwhile: a switch would wait for its end.
func (e *Engine) enterRead(ctx context.Context, r *response) (*stream, error) {
	var asked *stream
	for tries := 0; ; tries++ {
		s, err := e.enter(ctx, r.req.Interrupt)
		switch {
		case err != nil, !r.partial, len(r.tokens) == 0, e.templater(s.caps) == nil, tries == readTries:
			return s, err
		case asked != nil && asked.caps == s.caps && asked.label == s.label:
			return s, nil // nothing came between
		}
		e.leave(s)
		e.readOn(ctx, r, s.caps)
		asked = s
	}
}

// readOn reads the text that a server has held back of a response which was cut off: the next call
// begins behind it and never brings it. What stays unread is the beginning of a character.
func (e *Engine) readOn(ctx context.Context, r *response, caps *Capabilities) {
	whole, ok := e.decode(ctx, r, caps)
	if !ok {
		return
	}
	known := strings.TrimRight(whole, unread)
	rest, goesOn := strings.CutPrefix(known, string(r.text))
	if !goesOn {
		return
	}
	r.text, r.partial = append(r.text, rest...), len(known) < len(whole)
	if rest != "" && r.req.OnTokens != nil {
		r.req.OnTokens(port.Delta{Text: rest})
	}
}

// readWhole reads the text of a response that is complete from its tokens, where some is missing.
func (e *Engine) readWhole(ctx context.Context, r *response) {
	if !r.partial || r.pruned {
		return
	}
	whole, ok := e.decode(ctx, r, e.known())
	if !ok {
		return
	}
	for _, stop := range r.sampling.Stop {
		whole, _, _ = strings.Cut(whole, stop)
	}
	r.text, r.partial = []byte(whole), false
}

// templater is how a server reads tokens, nil where it cannot, or nobody knows what it can.
func (e *Engine) templater(caps *Capabilities) Templater {
	if how, ok := e.opt.Dialect.(Templater); ok && caps != nil && caps.Template {
		return how
	}
	return nil
}

// decode has the server read the tokens of a response; false where it cannot, or does not answer.
func (e *Engine) decode(ctx context.Context, r *response, caps *Capabilities) (string, bool) {
	how := e.templater(caps)
	if how == nil {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	go func() {
		select {
		case <-r.req.Interrupt:
			cancel()
		case <-ctx.Done():
		}
	}()
	text, err := how.Decode(ctx, e.opt.Server, r.tokens, caps)
	return text, err == nil
}

// stopsOver returns where the first stop text ends in the text that stands over the place at which a
// call went on, 0 for none: the server looks for it in what the call brings alone.
func (r *response) stopsOver() int {
	if r.textBase == 0 || r.partialBase {
		return 0
	}
	end := 0
	for _, stop := range r.sampling.Stop {
		from, to := max(r.textBase-len(stop)+1, 0), min(r.textBase+len(stop)-1, len(r.text))
		if stop == "" || from >= to {
			continue
		}
		if at := bytes.Index(r.text[from:to], []byte(stop)); at >= 0 && (end == 0 || from+at+len(stop) < end) {
			end = from + at + len(stop)
		}
	}
	return end
}
