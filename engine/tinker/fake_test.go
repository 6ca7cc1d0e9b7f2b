package tinker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Figures of the fake: its vocabulary, the token that ends a response, the time of a token.
const (
	fakeVocabulary = 512
	fakeEnd        = 2
	fakeToken      = 10 * time.Millisecond
)

// fakeService samples what is a function of the path and of everything before a token alone, so that the same
// response comes out however it is divided into pieces. Its log-probs tell the version.
type fakeService struct {
	// length is after how many tokens of a response to a prompt it ends; nil for never.
	length func(prompt []int32) int
	// patient: Sample takes fakeToken for each token.
	patient bool
	// answer, if not nil, may change what a call is answered with.
	answer func(n int, c *call)
	// open, if not nil, answers NewSampler's n-th call.
	open func(ctx context.Context, n int, path string) error

	opened, called, under atomic.Int64
	record
}

// record is what a service was asked and has answered.
type record struct {
	mu    sync.Mutex
	calls []*call
}

// call is one request that has come to its end.
type call struct {
	path     string
	version  loop.Version
	request  service.SampleRequest
	sequence service.Sequence
	err      error
}

func (r *record) add(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

type fakeSampler struct {
	service *fakeService
	path    string
}

func pathOf(v loop.Version) string { return fmt.Sprintf("tinker://model/v%d", v) }

func versionOf(path string) loop.Version {
	v, err := strconv.Atoi(path[strings.LastIndex(path, "v")+1:])
	if err != nil {
		panic(err)
	}
	return loop.Version(v)
}

func (f *fakeService) NewSampler(ctx context.Context, path string) (Sampler, error) {
	n := int(f.opened.Add(1))
	if f.open != nil {
		if err := f.open(ctx, n, path); err != nil {
			return nil, err
		}
	}
	return &fakeSampler{f, path}, nil
}

// Sample implements Sampler.
func (s *fakeSampler) Sample(ctx context.Context, q service.SampleRequest) (service.Sequence, error) {
	f := s.service
	n := int(f.called.Add(1))
	f.under.Add(1)
	defer f.under.Add(-1)
	c := &call{path: s.path, version: versionOf(s.path), request: q, sequence: f.sample(s.path, q)}
	if f.patient {
		timer := time.NewTimer(time.Duration(len(c.sequence.Tokens)) * fakeToken)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			c.err = ctx.Err()
		}
	}
	if f.answer != nil {
		f.answer(n, c)
	}
	f.add(c)
	return c.sequence, c.err
}

// fakePrompt is one of a number: it begins with its own length.
func fakePrompt(number int) []int32 {
	prompt := []int32{0, int32(10 + number%400), int32(10 + number/400%400), 7, 9}[:3+number%3]
	prompt[0] = int32(len(prompt))
	return prompt
}

// sample is the honest answer.
func (f *fakeService) sample(path string, q service.SampleRequest) service.Sequence {
	before := slices.Clone(q.Prompt)
	prompt := int(before[0])
	var s service.Sequence
	for len(s.Tokens) < q.MaxTokens && !s.Stopped {
		token, logprob := fakeNext(path, before)
		if f.length != nil && len(before)-prompt+1 >= f.length(before[:prompt]) {
			token = fakeEnd
		}
		before = append(before, token)
		s.Tokens, s.Logprobs = append(s.Tokens, token), append(s.Logprobs, logprob)
		s.Stopped = slices.Contains(q.Stop, token)
	}
	return s
}

// fakeNext is the token that follows others under a version, none that ends a response, and its log-prob.
func fakeNext(path string, before []int32) (int32, float32) {
	h := uint64(versionOf(path)) + 1
	for _, token := range before {
		h = loop.Mix(h*31 + uint64(token))
	}
	return int32(8 + h%(fakeVocabulary-8)), -1 - float32(versionOf(path)) - float32(h>>40%1000)/1024
}

// newEngine is an engine over a fake that serves version 0.
func newEngine(t *testing.T, f *fakeService, change func(*Options)) *Engine {
	t.Helper()
	o := Options{
		Name: "fake", Slots: 64, Service: f, Path: func(v loop.Version) (string, error) { return pathOf(v), nil },
		Piece: 8, Vocabulary: fakeVocabulary, Ends: []int32{fakeEnd}, Logf: t.Logf,
	}
	if change != nil {
		change(&o)
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if n := f.under.Load(); n != 0 {
			t.Errorf("%d requests are left at the service", n)
		}
	})
	serve(t, e, 0, false)
	return e
}

func serve(t *testing.T, e *Engine, v loop.Version, hold bool) {
	t.Helper()
	if err := e.Load(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if err := e.Switch(t.Context(), v, hold); err != nil {
		t.Fatal(err)
	}
}

func request(number, most int) port.GenerateRequest {
	return port.GenerateRequest{Rollout: port.RolloutID{Group: loop.GroupID(number + 1)}, Prompt: fakePrompt(number), MaxTokens: most}
}

// compare holds a response against the answers of the service: every token from its prefix on, by id, log-prob and
// version, bit by bit. It returns how many pieces it was made of.
func (r *record) compare(req port.GenerateRequest, g port.Generation) (pieces int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(g.Tokens) != len(g.Logprobs) || len(g.Tokens) != len(g.Versions) {
		return 0, fmt.Errorf("%d tokens, %d log-probs, %d versions", len(g.Tokens), len(g.Logprobs), len(g.Versions))
	}
	if g.Derived && !req.Prefix.Derived {
		return 0, fmt.Errorf("versions are marked as derived")
	}
	for at := len(req.Prefix.Tokens); at < len(g.Tokens); pieces++ {
		n := 0
		for _, c := range r.calls {
			n = max(n, c.brought(req.Prompt, g, at))
		}
		if n == 0 {
			return pieces, fmt.Errorf("what follows token %d (%v, %v by %v) is no answer of the service's",
				at, g.Tokens[at:], g.Logprobs[at:], g.Versions[at:])
		}
		at += n
	}
	return pieces, nil
}

// brought is how many tokens of a response from a place on were brought by a call: all of the call's, or those to the
// end of the response.
func (c *call) brought(prompt []int32, g port.Generation, at int) int {
	s := c.sequence
	n := min(len(s.Tokens), len(g.Tokens)-at)
	p := c.request.Prompt
	if c.err != nil || len(p) != len(prompt)+at || !slices.Equal(p[:len(prompt)], prompt) || !slices.Equal(p[len(prompt):], g.Tokens[:at]) ||
		!slices.Equal(s.Tokens[:n], g.Tokens[at:at+n]) || !slices.Equal(s.Logprobs[:n], g.Logprobs[at:at+n]) {
		return 0
	}
	for _, v := range g.Versions[at : at+n] {
		if v != c.version {
			return 0
		}
	}
	return n
}

// told hears what a request's callbacks are told.
type told struct {
	delta port.Delta
	first []loop.Version
}

// listen has a request's callbacks tell here.
func (o *told) listen(req port.GenerateRequest) port.GenerateRequest {
	req.OnTokens = func(d port.Delta) {
		o.delta.Tokens, o.delta.Logprobs = append(o.delta.Tokens, d.Tokens...), append(o.delta.Logprobs, d.Logprobs...)
	}
	if len(req.Prefix.Tokens) == 0 {
		req.FirstToken = func(v loop.Version) { o.first = append(o.first, v) }
	}
	return req
}

// check reports a difference of what was told from what was returned, behind a prefix of so many tokens.
func (o *told) check(g port.Generation, prefix int) error {
	if !slices.Equal(o.delta.Tokens, g.Tokens[prefix:]) || !slices.Equal(o.delta.Logprobs, g.Logprobs[prefix:]) {
		return fmt.Errorf("OnTokens was told %v, returned is %v behind %d", o.delta.Tokens, g.Tokens, prefix)
	}
	if prefix == 0 && len(g.Tokens) > 0 && (len(o.first) != 1 || o.first[0] != g.Versions[0]) {
		return fmt.Errorf("FirstToken was told %v, the first token is of version %d", o.first, g.Versions[0])
	}
	return nil
}
