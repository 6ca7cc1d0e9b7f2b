package upstream

import (
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// The text of a call is bounded by the tokens that it may bring, or a server could fill the memory with
// text that belongs to none. Tokens of real vocabularies are below a hundred bytes or so, a few above; what
// a server says beside them, as what it puts in place of half characters, has the rest.
const (
	textBytesSpare = 64 << 10
	textBytesToken = 1 << 10
)

// LogprobMissing is what servers say for a log-prob that they do not have.
const LogprobMissing = -9999

// response is what there is of a response, over all the calls that it takes.
type response struct {
	req      port.GenerateRequest
	sampling port.Sampling
	max      int // tokens of the response, MaxTokens or what the context leaves

	tokens   []int32
	logprobs []float32
	versions []loop.Version
	text     []byte
	// partial: text lacks that of some tokens.
	partial bool
	// fitted is the server for whose limits the response was cut, nil for none yet.
	fitted                         *Capabilities
	derived                        bool
	truncated, interrupted, pruned bool
	begun                          bool // FirstToken has been called, or is not to be
	stopped                        bool // a stop text over the place where a call went on ended it

	// What follows is of the present call.
	base int // tokens before it
	// sampled counts the call's tokens, those after a stop by Check included.
	sampled int
	finish  Finish
	spans   []Span
	// tail is what the event brought that ends the response: it counts with the stream's regular end.
	tail        Delta
	tailVersion loop.Version
	textBase    int  // bytes of text before the call
	partialBase bool // partial before it
	// late: the last tokens came without text, which the server may hold back.
	late bool
	told bool // OnTokens has been told of tokens of this call
	// heard is how many tokens OnTokens has been told of, and unheard the text that it has not.
	heard   int
	unheard string
	// known is the first row of passes that no call has brought yet.
	known int
}

// newResponse checks a request and returns the response to be.
func (e *Engine) newResponse(req port.GenerateRequest) (*response, error) {
	r := &response{req: req, known: req.Known, max: req.MaxTokens, sampling: *e.opt.Sampling, begun: req.FirstToken == nil || len(req.Prefix.Tokens) > 0}
	if req.Sampling != nil {
		r.sampling = *req.Sampling
	}
	p := req.Prefix
	n := len(p.Tokens)
	if len(req.Prompt) == 0 {
		return nil, e.fail("rollout %v has no prompt: want at least one token", req.Rollout)
	}
	if n != len(p.Logprobs) || n != len(p.Versions) || req.MaxTokens < 1 || n >= req.MaxTokens {
		return nil, e.fail("rollout %v goes on from %d tokens, %d log-probs and %d versions up to %d tokens, want equal numbers below the last, at least 1",
			req.Rollout, n, len(p.Logprobs), len(p.Versions), req.MaxTokens)
	}
	r.tokens = append(make([]int32, 0, n+tokensExpected), p.Tokens...)
	r.logprobs = append(make([]float32, 0, n+tokensExpected), p.Logprobs...)
	r.versions = append(make([]loop.Version, 0, n+tokensExpected), p.Versions...)
	r.text, r.partial, r.derived = []byte(p.Text), p.TextPartial, p.Derived
	caps := e.known()
	if caps == nil {
		caps = &Capabilities{} // the first call sees to it
	}
	return r, e.fit(r, caps)
}

// fit refuses what the server cannot take, and cuts the response to the room that its context has.
func (e *Engine) fit(r *response, caps *Capabilities) error {
	if r.fitted == caps {
		return nil
	}
	if err := e.checkBefore(r.req, e.vocabulary(caps)); err != nil {
		return err
	}
	r.fitted, r.max = caps, r.req.MaxTokens
	if caps.Context == 0 {
		return nil
	}
	room := caps.Context - caps.Spare - len(r.req.Prompt)
	if room < 1 {
		return e.fail("%w: rollout %v has a prompt of %d tokens, and the server's context of %d, of which it keeps %d free, leaves room for a response after at most %d: shorten the prompt or start the server with a longer context",
			ErrRefused, r.req.Rollout, len(r.req.Prompt), caps.Context, caps.Spare, caps.Context-caps.Spare-1)
	}
	r.max = min(r.max, max(room, len(r.tokens)))
	return nil
}

// full reports whether there is no room for another token, which ends the response.
func (r *response) full() bool {
	r.truncated = len(r.tokens) >= r.max
	return r.truncated
}

// tokensExpected is the room that a response begins with.
const tokensExpected = 64

// vocabulary is the number of token ids that there are, 0 for unknown.
func (e *Engine) vocabulary(caps *Capabilities) int {
	if e.opt.Vocabulary > 0 {
		return e.opt.Vocabulary
	}
	return caps.Vocabulary
}

// checkBefore refuses what cannot stand before what is to be sampled.
func (e *Engine) checkBefore(req port.GenerateRequest, vocabulary int) error {
	for _, part := range [...][]int32{req.Prompt, req.Prefix.Tokens} {
		for i, token := range part {
			if token < 0 || vocabulary > 0 && int(token) >= vocabulary {
				return e.fail("rollout %v has the token %d before what is to be sampled, at %d; the vocabulary has %d", req.Rollout, token, i, vocabulary)
			}
		}
	}
	for i, version := range req.Prefix.Versions {
		if version < 0 {
			return e.fail("rollout %v cannot go on from token %d of version %d: nobody knows what sampled it", req.Rollout, i, version)
		}
	}
	return nil
}

// begin makes ready for the next call.
func (r *response) begin() {
	r.base, r.textBase, r.partialBase, r.sampled, r.finish, r.late, r.told = len(r.tokens), len(r.text), r.partial, 0, "", false, false
	r.heard, r.spans = len(r.tokens), r.spans[:0]
	r.tail.reset()
}

// reset empties a delta and keeps its room.
func (d *Delta) reset() {
	d.Tokens, d.Logprobs, d.Text, d.Finish, d.Spans = d.Tokens[:0], d.Logprobs[:0], "", "", d.Spans[:0]
	d.MaskLengths, d.MaskIDs, d.Expanded = d.MaskLengths[:0], d.MaskIDs[:0], nil
}

// take adds what an event has brought, as sampled by version.
func (r *response) take(d *Delta, version loop.Version, vocabulary int) error {
	if err := r.judge(d, vocabulary); err != nil {
		return fmt.Errorf("%w: %w", ErrLied, err)
	}
	r.sampled += len(d.Tokens)
	r.spans = addSpans(r.spans, d.Spans)
	if d.Finish != "" {
		r.finish = d.Finish
	}
	switch {
	case r.pruned, r.stopped:
		// What comes after the stop counts for nothing but the spans.
	case r.finish == FinishStop, r.finish == FinishLength, len(r.tokens)+len(d.Tokens) >= r.max, len(r.tail.Tokens) > 0:
		r.tail.Tokens = append(r.tail.Tokens, d.Tokens...)
		r.tail.Logprobs = append(r.tail.Logprobs, d.Logprobs...)
		r.tail.Text += d.Text
		if len(d.Tokens) > 0 {
			r.tailVersion = version
		}
	default:
		r.add(d, version, false)
	}
	return nil
}

// judge refuses what no honest server says.
func (r *response) judge(d *Delta, vocabulary int) error {
	if len(d.Tokens) != len(d.Logprobs) {
		return fmt.Errorf("%d tokens with %d log-probs", len(d.Tokens), len(d.Logprobs))
	}
	if asked := r.max - r.base; r.sampled+len(d.Tokens) > asked {
		return fmt.Errorf("%d tokens where %d were asked for", r.sampled+len(d.Tokens), asked)
	}
	if text := len(r.text) - r.textBase + len(r.tail.Text) + len(d.Text); overlong(text, r.max-r.base) {
		return fmt.Errorf("%d bytes of text, want at most %d for each of the %d tokens asked for, and %d more",
			text, textBytesToken, r.max-r.base, textBytesSpare)
	}
	if r.finish != "" && (len(d.Tokens) > 0 || d.Finish != "" && d.Finish != r.finish) {
		return fmt.Errorf("it goes on after its end by %s, with %d tokens and the end %q", r.finish, len(d.Tokens), d.Finish)
	}
	if d.Finish != "" && d.Finish != FinishStop && d.Finish != FinishLength && d.Finish != FinishAbort {
		return fmt.Errorf("it ends by %q", d.Finish)
	}
	for i, token := range d.Tokens {
		if token < 0 || vocabulary > 0 && int(token) >= vocabulary {
			return fmt.Errorf("token %d of the call is %d, the vocabulary has %d", r.sampled+i, token, vocabulary)
		}
		if p := float64(d.Logprobs[i]); math.IsNaN(p) || p <= LogprobMissing || p > 0 {
			return fmt.Errorf("token %d of the call, %d, has no log-prob: it says %g", r.sampled+i, token, p)
		}
	}
	return nil
}

// overlong reports whether a call's text is longer than that of so many tokens, which may be any number.
func overlong(text, tokens int) bool {
	return text > textBytesSpare && (text-textBytesSpare-1)/textBytesToken >= tokens
}

// add records tokens up to where Check stops them. ends: the last of them completes the response.
func (r *response) add(d *Delta, version loop.Version, ends bool) {
	before := len(r.tokens)
	text := d.Text
	for i, token := range d.Tokens {
		r.tokens = append(r.tokens, token)
		r.logprobs = append(r.logprobs, d.Logprobs[i])
		r.versions = append(r.versions, version)
		if !r.begun {
			r.begun = true
			r.req.FirstToken(version)
		}
		completes := ends && i == len(d.Tokens)-1
		if !completes && r.req.Check != nil && r.req.Check(r.tokens) {
			r.pruned = true
			if i < len(d.Tokens)-1 {
				text, r.partial = "", true // it is of the tokens after the stop as well
			}
			break
		}
	}
	r.text = append(r.text, text...)
	if len(r.tokens) > before {
		r.late = text == ""
	}
	if end := r.stopsOver(); end > 0 && !r.pruned { // its tokens stay, whose texts nobody knows one by one
		r.stopped = true
		text = text[:len(text)-(len(r.text)-end)]
		r.text = r.text[:end]
	}
	r.unheard += text
}

// tell has OnTokens know what it has not heard of.
func (r *response) tell() {
	d := port.Delta{Tokens: r.tokens[r.heard:], Logprobs: r.logprobs[r.heard:], Text: r.unheard}
	r.heard, r.unheard = len(r.tokens), ""
	if r.req.OnTokens != nil && (len(d.Tokens) > 0 || d.Text != "") {
		r.told = true
		r.req.OnTokens(d)
	}
}

// close ends the present call's part. regular: the stream came to its regular end. cut: it was cut
// off from this side. The versions that the server names take the place of those by the barrier.
func (r *response) close(e *Engine, regular, cut bool, prompt int) error {
	if regular && (r.finish == FinishStop || r.finish == FinishLength) && !r.pruned && !r.stopped {
		r.truncated = r.finish == FinishLength
		r.add(&r.tail, r.tailVersion, true)
		r.tell()
		r.truncated = r.truncated && !r.pruned && !r.stopped
		if r.textBase > 0 && len(r.text) == r.textBase && (len(r.tokens)-r.base > 1 || r.truncated) {
			r.partial = true // it gives no text, and what stood before was read
		}
	} else if len(r.tokens) > r.base && !r.stopped && (r.late || len(r.sampling.Stop) > 0) {
		r.partial = true // servers hold back half characters, and what may begin a stop text
	}
	n := len(r.tokens) - r.base
	if n == 0 {
		return nil
	}
	named, err := r.named(e, cut || !regular, prompt)
	switch {
	case err != nil && (regular || errors.Is(err, errUnknownLabel)):
		return fmt.Errorf("%w: %w", ErrLied, err)
	case named == nil || err != nil:
		r.derived = true
		return nil
	}
	for i := range n {
		if r.versions[r.base+i] != named[i] {
			e.counts.disagreements.Add(1)
		}
		r.versions[r.base+i] = named[i]
	}
	e.counts.named.Add(int64(n))
	return nil
}

// named are the versions that the server names, nil where it names none. The tokens that have
// arrived and do not count, of a tail or after a stop, are among those that it names.
func (r *response) named(e *Engine, cut bool, prompt int) ([]loop.Version, error) {
	if len(r.spans) == 0 || !e.names() {
		return nil, nil
	}
	return resolveSpans(r.spans, prompt, r.sampled, cut, e.versionOf)
}

// names reports whether the server's labels of versions were given from here.
func (e *Engine) names() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.labelled
}

// undo takes back what the present call has brought.
func (r *response) undo() {
	r.tokens, r.logprobs, r.versions = r.tokens[:r.base], r.logprobs[:r.base], r.versions[:r.base]
	r.heard, r.text, r.partial = r.base, r.text[:r.textBase], r.partialBase
}

// generation is the response as far as it has come.
func (r *response) generation() port.Generation {
	n := len(r.tokens)
	return port.Generation{
		Tokens: r.tokens[:n:n], Logprobs: r.logprobs[:n:n], Versions: r.versions[:n:n],
		Truncated: r.truncated, Interrupted: r.interrupted, Pruned: r.pruned, Derived: r.derived,
		Text: string(r.text), TextPartial: r.partial,
	}
}
