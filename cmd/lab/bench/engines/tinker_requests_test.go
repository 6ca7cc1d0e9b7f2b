package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Figures of the random requests, in the order in which they are shown.
const (
	tinkerRequests  = "random requests"
	tinkerWhole     = "of these, to their end"
	tinkerAborted   = "of these, aborted while the service sampled a piece"
	tinkerCut       = "of these, interrupted while the service sampled a piece, and resumed"
	tinkerSwitches  = "switches between saved versions"
	tinkerAnswers   = "answers of the service read off the wire"
	tinkerCompared  = "tokens compared by id, log-prob and version"
	tinkerMixed     = "responses under more than one version"
	tinkerDiffering = "differences"
	tinkerFailed    = "requests that failed"
)

// wireHooks call something when the service has taken the piece of a request.
type wireHooks struct {
	mu sync.Mutex
	at map[int]*wireHook
}

// wireHook is called when so many more pieces of a request have been taken.
type wireHook struct {
	left int
	call func()
}

// set sets the hook of the request of a number.
func (w *wireHooks) set(number, after int, call func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[number] = &wireHook{after, call}
}

func (w *wireHooks) observe(e enginetest.Exchange) {
	if !strings.HasSuffix(e.Path, "/asample") {
		return
	}
	a, err := asked(e)
	if err != nil {
		return // the comparison says so
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.at[requestOf(a.prompt)]
	if h == nil {
		return
	}
	if h.left--; h.left == 0 {
		h.call()
	}
}

// tinkerOutcome is one request and what became of it.
type tinkerOutcome struct {
	number int
	wish   string
	req    port.GenerateRequest
	got    port.Generation
	told   port.Delta
	first  loop.Version
	err    error
}

// requests makes the random requests while versions change, and compares what was recorded with the wire.
func (s *tinkerSuite) requests(t *testing.T) {
	for _, what := range []string{tinkerRequests, tinkerWhole, tinkerAborted, tinkerCut, tinkerSwitches, tinkerAnswers, tinkerCompared, tinkerMixed, tinkerDiffering, tinkerFailed} {
		s.add(what, 0)
	}
	s.serve(t, 0, true)
	s.earlier = len(s.recorder.Settle())
	outcomes := make([]*tinkerOutcome, s.count)
	var next atomic.Int64
	finished := make(chan struct{}, s.count)
	var workers sync.WaitGroup
	for range tinkerSlots {
		workers.Go(func() {
			for n := int(next.Add(1)) - 1; n < s.count; n = int(next.Add(1)) - 1 {
				outcomes[n] = s.request(t.Context(), n)
				finished <- struct{}{}
			}
		})
	}
	version := loop.Version(0)
	for n := 1; n <= s.count; n++ {
		<-finished
		if n%100 == 0 {
			t.Logf("progress: %d of %d requests, version %d", n, s.count, version)
		}
		if version < switches && n > (int(version)+1)*s.count/(switches+2) {
			version++
			s.serve(t, version, version%2 == 0) // with a hold and without
			s.add(tinkerSwitches, 1)
		}
	}
	workers.Wait()
	s.compare(t, outcomes)
}

// request makes one request. A third do not end by themselves.
func (s *tinkerSuite) request(ctx context.Context, number int) *tinkerOutcome {
	draw := rand.New(rand.NewPCG(6, uint64(number)))
	o := &tinkerOutcome{number: number, wish: tinkerWhole, first: loop.NoVersion}
	switch x := draw.Float64(); {
	case x < 0.15:
		o.wish = tinkerAborted
	case x < 0.35:
		o.wish = tinkerCut
	}
	o.req = port.GenerateRequest{Rollout: port.RolloutID{Group: loop.GroupID(number + 1)}, Prompt: numbered(draw, number), MaxTokens: 1 + draw.IntN(tinkerTokens)}
	if draw.Float64() < 0.2 {
		o.req.Sampling = &port.Sampling{Temperature: 0.5 + draw.Float64(), TopP: 1, TopK: draw.IntN(2) * 20}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if o.wish == tinkerAborted {
		s.wire.set(number, 1+draw.IntN(3), cancel)
	}
	req := o.req
	for round := 0; ; round++ {
		listening := o.listen(req)
		if o.wish == tinkerCut && round < 3 {
			stop := make(chan struct{})
			s.wire.set(number, 1+draw.IntN(3), func() { close(stop) })
			listening.Interrupt = stop
		}
		o.got, o.err = s.engine.Generate(ctx, listening)
		if o.wish == tinkerAborted && errors.Is(o.err, context.Canceled) {
			o.err = nil
		}
		if o.err != nil || !o.got.Interrupted {
			return o
		}
		req.Prefix = o.got.Prefix()
	}
}

// listen adds what hears of tokens to a request.
func (o *tinkerOutcome) listen(req port.GenerateRequest) port.GenerateRequest {
	req.OnTokens = func(d port.Delta) {
		o.told.Tokens, o.told.Logprobs = append(o.told.Tokens, d.Tokens...), append(o.told.Logprobs, d.Logprobs...)
	}
	if len(req.Prefix.Tokens) == 0 {
		req.FirstToken = func(v loop.Version) { o.first = v }
	}
	return req
}

// numberTokens is how many of a prompt's first tokens spell the request's number, numberBase in what base.
const (
	numberTokens = 4
	numberBase   = 16
)

// numbered draws a prompt that no other request has.
func numbered(draw *rand.Rand, number int) []int32 {
	var prompt []int32
	for range numberTokens {
		prompt = append(prompt, 8+int32(number%numberBase))
		number /= numberBase
	}
	return append(prompt, tokens(draw, draw.IntN(tinkerTokens-numberTokens))...)
}

// requestOf is the number of the request that a prompt begins with, -1 for none.
func requestOf(prompt []int32) int {
	if len(prompt) < numberTokens {
		return -1
	}
	number := 0
	for _, digit := range slices.Backward(prompt[:numberTokens]) {
		number = number*numberBase + int(digit) - 8
	}
	return number
}

// piece is a request for tokens as it went over the wire, and what it was answered with.
type piece struct {
	prompt   []int32
	most     int
	session  string
	future   string
	answered bool
	tokens   []int32
	logprobs []float32
}

// asked reads a request for tokens and the future that it was answered with.
func asked(e enginetest.Exchange) (*piece, error) {
	var q struct {
		Prompt struct {
			Chunks []struct{ Tokens []int32 }
		}
		Params struct {
			Most int `json:"max_tokens"`
		} `json:"sampling_params"`
		Session string `json:"sampling_session_id"`
	}
	if err := json.Unmarshal(e.Body, &q); err != nil {
		return nil, fmt.Errorf("a request for tokens: %w", err)
	}
	p := &piece{most: q.Params.Most, session: q.Session}
	for _, c := range q.Prompt.Chunks {
		p.prompt = append(p.prompt, c.Tokens...)
	}
	var taken struct {
		ID string `json:"request_id"`
	}
	if e.End == enginetest.EndRegular && e.Status == 200 && len(e.Pieces) > 0 {
		if err := json.Unmarshal(e.Pieces[0].Data, &taken); err != nil {
			return nil, fmt.Errorf("the answer to a request for tokens: %w", err)
		}
	}
	p.future = taken.ID
	return p, nil
}

// wirePieces reads from the wire what was asked of whom and answered how since the random requests began, by the number of
// the request, and which version each sampling session is of.
func (s *tinkerSuite) wirePieces() (pieces map[int][]*piece, versions map[string]loop.Version, err error) {
	pieces, versions = map[int][]*piece{}, map[string]loop.Version{}
	futures := map[string]*piece{}
	all := s.recorder.Settle()
	for i, e := range all {
		switch {
		case i >= s.earlier && strings.HasSuffix(e.Path, "/asample"):
			p, wrong := asked(e)
			if wrong != nil {
				return nil, nil, wrong
			}
			number := requestOf(p.prompt)
			pieces[number] = append(pieces[number], p)
			futures[p.future] = p
		case strings.HasSuffix(e.Path, "/create_sampling_session") && e.Status == 200:
			var q struct {
				Path string `json:"model_path"`
			}
			var r struct {
				ID string `json:"sampling_session_id"`
			}
			if err := errors.Join(json.Unmarshal(e.Body, &q), json.Unmarshal(e.Pieces[0].Data, &r)); err != nil {
				return nil, nil, fmt.Errorf("a sampling session: %w", err)
			}
			versions[r.ID] = loop.Version(slices.Index(s.paths, q.Path))
		}
	}
	for _, e := range all {
		if strings.HasSuffix(e.Path, "/retrieve_future") && e.Status == 200 && e.End == enginetest.EndRegular && len(e.Pieces) > 0 {
			if err := answer(e, futures); err != nil {
				return nil, nil, err
			}
		}
	}
	return pieces, versions, nil
}

// answer reads the result of a future that is a request for tokens.
func answer(e enginetest.Exchange, futures map[string]*piece) error {
	var q struct {
		ID string `json:"request_id"`
	}
	var r struct {
		Sequences []struct {
			Tokens   []int32
			Logprobs []float32
		}
	}
	if err := json.Unmarshal(e.Body, &q); err != nil {
		return fmt.Errorf("a request for a future: %w", err)
	}
	p := futures[q.ID]
	if p == nil {
		return nil
	}
	if err := json.Unmarshal(e.Pieces[0].Data, &r); err != nil {
		return fmt.Errorf("the result of future %s: %w", q.ID, err)
	}
	if len(r.Sequences) == 1 {
		p.answered, p.tokens, p.logprobs = true, r.Sequences[0].Tokens, r.Sequences[0].Logprobs
	}
	return nil
}

// compare holds every outcome against what the service has sent.
func (s *tinkerSuite) compare(t *testing.T, outcomes []*tinkerOutcome) {
	pieces, versions, err := s.wirePieces()
	if err != nil {
		t.Fatal(err)
	}
	for number, all := range pieces {
		if number >= 0 && number < len(outcomes) {
			for _, p := range all {
				if p.answered {
					s.add(tinkerAnswers, 1)
				}
			}
		}
	}
	wrong := 0
	for _, o := range outcomes {
		s.add(tinkerRequests, 1)
		s.add(o.wish, 1)
		what := tinkerFailed
		err := o.check()
		if err == nil {
			what, err = tinkerDiffering, s.compareOne(o, pieces[o.number], versions)
		}
		if err == nil {
			continue
		}
		s.add(what, 1)
		if wrong++; wrong <= 10 {
			t.Errorf("request %d, %s: %v", o.number, o.wish, err)
		} else {
			t.Fail()
		}
	}
}

// check says what is wrong with an outcome by itself.
func (o *tinkerOutcome) check() error {
	g, n := o.got, len(o.got.Tokens)
	switch {
	case o.err != nil:
		return o.err
	case len(g.Logprobs) != n || len(g.Versions) != n:
		return fmt.Errorf("%d tokens, %d log-probs, %d versions", n, len(g.Logprobs), len(g.Versions))
	case n > o.req.MaxTokens || n > 0 && slices.Contains(g.Tokens[:n-1], modelEnd):
		return fmt.Errorf("%v: %d tokens were asked for, up to an end", g.Tokens, o.req.MaxTokens)
	case o.wish != tinkerAborted && (n == 0 || g.Interrupted || g.Truncated != (g.Tokens[n-1] != modelEnd) || g.Truncated && n != o.req.MaxTokens):
		return fmt.Errorf("%v of at most %d: interrupted %v, truncated %v", g.Tokens, o.req.MaxTokens, g.Interrupted, g.Truncated)
	case n > 0 && o.first != g.Versions[0]:
		return fmt.Errorf("FirstToken said version %d, the first token is of %d", o.first, g.Versions[0])
	case !slices.Equal(g.Tokens, o.told.Tokens) || !slices.Equal(g.Logprobs, o.told.Logprobs):
		return errors.New("OnTokens was told other tokens than were returned")
	case g.Derived:
		return errors.New("its versions are marked as derived")
	}
	return nil
}

// compareOne walks through a response: each stretch of it is what the service answered to a request for what
// follows everything before it, by the version of its sampling session. Nothing else was asked for.
func (s *tinkerSuite) compareOne(o *tinkerOutcome, all []*piece, versions map[string]loop.Version) error {
	g, whole := o.got, slices.Concat(o.req.Prompt, o.got.Tokens)
	for _, p := range all {
		if len(p.prompt) < len(o.req.Prompt) || len(p.prompt) > len(whole) || !slices.Equal(p.prompt, whole[:len(p.prompt)]) {
			return fmt.Errorf("the service was asked to go on from tokens that are not of the response: %v", p.prompt)
		}
		if p.most > o.req.MaxTokens+len(o.req.Prompt)-len(p.prompt) {
			return fmt.Errorf("the service was asked for %d tokens after %d of %d", p.most, len(p.prompt)-len(o.req.Prompt), o.req.MaxTokens)
		}
	}
	for at := 0; at < len(g.Tokens); {
		n := 0
		for _, p := range all {
			if len(p.prompt) != len(o.req.Prompt)+at || !p.answered {
				continue
			}
			if n = p.agrees(g, at, versions); n > 0 {
				break
			}
		}
		if n == 0 {
			return fmt.Errorf("tokens from %d of %d on (%v, log-probs %v, versions %v) are of no answer of the service", at, len(g.Tokens), g.Tokens[at:], g.Logprobs[at:], g.Versions[at:])
		}
		s.add(tinkerCompared, n)
		at += n
	}
	if len(g.Versions) > 0 && slices.Min(g.Versions) != slices.Max(g.Versions) {
		s.add(tinkerMixed, 1)
	}
	return nil
}

// agrees is how many tokens of a response from a place on are this answer's, to its end or to the response's; 0
// where one differs.
func (p *piece) agrees(g port.Generation, at int, versions map[string]loop.Version) int {
	n := min(len(p.tokens), len(g.Tokens)-at)
	version, known := versions[p.session]
	if end := slices.Index(p.tokens, modelEnd); n < len(p.tokens) && end != n-1 {
		return 0 // an answer is cut behind the end of the response alone
	}
	for i := range n {
		if g.Tokens[at+i] != p.tokens[i] || g.Logprobs[at+i] != p.logprobs[i] || !known || g.Versions[at+i] != version {
			return 0
		}
	}
	return n
}
