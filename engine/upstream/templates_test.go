package upstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/loop/port"
)

// spelling is a dialect whose server's tokens are letters.
type spelling struct {
	fakeDialect
	can   bool
	err   error
	asked atomic.Int64
}

func (s *spelling) Probe(context.Context, *Server) (Capabilities, error) {
	return Capabilities{Template: s.can}, nil
}

func (s *spelling) answer(text string) ([]int32, error) {
	s.asked.Add(1)
	var tokens []int32
	for _, letter := range text {
		tokens = append(tokens, letter)
	}
	return tokens, s.err
}

func (s *spelling) Render(_ context.Context, _ *Server, messages, tools []byte, generation bool, _ *Capabilities) ([]int32, error) {
	text := string(messages) + "/" + string(tools)
	if generation {
		text += ">"
	}
	return s.answer(text)
}

func (s *spelling) Encode(_ context.Context, _ *Server, text string, _ *Capabilities) ([]int32, error) {
	return s.answer(text)
}

func (s *spelling) Decode(_ context.Context, _ *Server, tokens []int32, _ *Capabilities) (string, error) {
	s.asked.Add(1)
	return string(tokens), s.err
}

func newSpelling(t *testing.T, change func(*spelling)) (*spelling, *Engine) {
	t.Helper()
	s := &spelling{can: true}
	if change != nil {
		change(s)
	}
	server, err := NewServer(ServerOptions{URL: "http://nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Name: "e", Slots: 1, Server: server, Dialect: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return s, e
}

func newTemplates(t *testing.T, tokens int, engines ...*Engine) *Templates {
	t.Helper()
	templates, err := NewTemplates(TemplatesOptions{Engines: engines, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	return templates
}

func TestTemplatesAskOnce(t *testing.T) {
	s, e := newSpelling(t, nil)
	templates := newTemplates(t, 0, e)
	for range 3 {
		got, err := templates.Render(t.Context(), []byte("ab"), []byte("c"), true)
		if err != nil || string(got) != "ab/c>" {
			t.Fatalf("%q, %v", string(got), err)
		}
		got[0] = 0 // it is the caller's
	}
	for _, other := range [][2]string{{"a", "bc"}, {"abc", ""}, {"", "abc"}} {
		if got, _ := templates.Render(t.Context(), []byte(other[0]), []byte(other[1]), true); string(got) != other[0]+"/"+other[1]+">" {
			t.Errorf("%q renders as %q", other, string(got))
		}
	}
	if got, _ := templates.Render(t.Context(), []byte("ab"), []byte("c"), false); string(got) != "ab/c" {
		t.Errorf("without a beginning of the answer it renders as %q", string(got))
	}
	for range 2 {
		if got, err := templates.Encode(t.Context(), "ab"); err != nil || string(got) != "ab" {
			t.Errorf("%q, %v", string(got), err)
		}
		if got, err := templates.Decode(t.Context(), []int32("ab")); err != nil || got != "ab" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if asked := s.asked.Load(); asked != 7 {
		t.Errorf("the server was asked %d times, want 7", asked)
	}
}

func TestTemplatesForgetTheLeastUsed(t *testing.T) {
	s, e := newSpelling(t, nil)
	templates := newTemplates(t, 1000, e) // of about ten short texts
	long := strings.Repeat("x", 200)
	ask := func(text string, want int64) {
		t.Helper()
		before := s.asked.Load()
		if got, err := templates.Encode(t.Context(), text); err != nil || string(got) != text {
			t.Fatalf("%q, %v", string(got), err)
		}
		if asked := s.asked.Load() - before; asked != want {
			t.Errorf("%q is asked %d times, want %d", text, asked, want)
		}
	}
	ask("kept", 1)
	for i := range 100 {
		ask(strings.Repeat("y", 60)+string(rune('a'+i%26))+string(rune('a'+i/26)), 1)
		ask("kept", 0)
	}
	ask(long, 1)
	ask(long, 1) // it would take too much of the room
	if templates.size > 1000 || len(templates.known) != templates.order.Len() {
		t.Errorf("%d tokens in %d entries", templates.size, len(templates.known))
	}
}

func TestTemplatesPassOverWhoCannot(t *testing.T) {
	_, cannot := newSpelling(t, func(s *spelling) { s.can = false })
	down, broken := newSpelling(t, func(s *spelling) { s.err = errors.New("broken") })
	fine, third := newSpelling(t, nil)
	templates := newTemplates(t, 0, cannot, broken, third)
	if got, err := templates.Encode(t.Context(), "a"); err != nil || string(got) != "a" {
		t.Errorf("%q, %v", string(got), err)
	}
	if down.asked.Load() != 1 || fine.asked.Load() != 1 {
		t.Errorf("asked %d and %d times", down.asked.Load(), fine.asked.Load())
	}
	// What a server refuses, the next would refuse as well.
	down.err = &StatusError{Status: 400, Message: "no such role"}
	if _, err := newTemplates(t, 0, cannot, broken, third).Render(t.Context(), []byte("b"), nil, true); StatusOf(err) != 400 || fine.asked.Load() != 1 {
		t.Errorf("%v; asked %d times", err, fine.asked.Load())
	}
	alone := newTemplates(t, 0, cannot)
	if _, err := alone.Encode(t.Context(), "a"); !errors.Is(err, ErrLacking) || !errors.Is(err, ErrNoTokenizer) {
		t.Errorf("nobody can, and it says %v", err)
	}
	if _, err := newTemplates(t, 0, cannot, broken).Encode(t.Context(), "a"); err == nil || errors.Is(err, ErrNoTokenizer) {
		t.Errorf("one cannot and one is broken, and it says %v", err)
	}
	if _, err := NewTemplates(TemplatesOptions{}); err == nil {
		t.Error("templates without engines")
	}
}

// hanging is a dialect whose server never answers.
type hanging struct{ *spelling }

func (h hanging) Encode(ctx context.Context, _ *Server, _ string, _ *Capabilities) ([]int32, error) {
	h.asked.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// An engine that hangs does not keep the next from answering; who asks may give up before that.
func TestTemplatesPassOverWhoHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, first := newSpelling(t, nil)
		first.opt.Dialect = hanging{hung}
		fine, second := newSpelling(t, nil)
		templates := newTemplates(t, 0, first, second)
		if got, err := templates.Encode(t.Context(), "a"); err != nil || string(got) != "a" || hung.asked.Load() != 1 {
			t.Errorf("%q, %v; it that hangs was asked %d times", string(got), err, hung.asked.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), probeLimit/2)
		defer cancel()
		if _, err := newTemplates(t, 0, first, second).Encode(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) || fine.asked.Load() != 1 {
			t.Errorf("who asked gave up, and it says %v; the next was asked %d times", err, fine.asked.Load())
		}
		if _, err := newTemplates(t, 0, first).Encode(t.Context(), "c"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the only one hangs, and it says %v", err)
		}
	})
}

// Questions go round. An engine that fails is left alone until others have answered many more, and is asked again
// then; where it alone is left it is asked at once.
func TestTemplatesAskInTurn(t *testing.T) {
	a, first := newSpelling(t, nil)
	b, second := newSpelling(t, nil)
	c, third := newSpelling(t, nil)
	templates := newTemplates(t, 0, first, second, third)
	asked := 0
	ask := func(times int) {
		t.Helper()
		for range times {
			asked++
			text := strings.Repeat("x", asked)
			if got, err := templates.Encode(t.Context(), text); err != nil || string(got) != text {
				t.Fatalf("%q, %v", string(got), err)
			}
		}
	}
	counts := func() [3]int64 { return [3]int64{a.asked.Swap(0), b.asked.Swap(0), c.asked.Swap(0)} }
	if ask(30); counts() != [3]int64{10, 10, 10} {
		t.Error("questions do not go round")
	}
	b.err = errors.New("gone")
	ask(turnsPast)
	if got := counts(); got[1] != 1 || got[0]+got[2] != turnsPast {
		t.Errorf("one is gone, and they are asked %d times", got)
	}
	b.err = nil
	ask(turnsPast)
	if got := counts(); got[1] < turnsPast/4 {
		t.Errorf("one is back, and they are asked %d times", got)
	}
	a.err, c.err = errors.New("gone"), errors.New("gone")
	ask(turnsPast)
	if got := counts(); got[1] != turnsPast || got[0] > 2 || got[2] > 2 {
		t.Errorf("one is left, and they are asked %d times", got)
	}
}

// An engine that is busy with an answer is asked after one that is not, and one of another kind at last.
func TestTemplatesAskTheLeastBusy(t *testing.T) {
	_, first := newSpelling(t, nil)
	_, second := newSpelling(t, nil)
	s, other := newSpelling(t, nil)
	other.opt.Dialect = foreign{s}
	turns := newTurns([]*Engine{first, second, other})
	turns.begin(0)
	for range 3 {
		if got := turns.order(); !slices.Equal(got, []int{1, 0, 2}) {
			t.Errorf("the first is busy, and the order is %d", got)
		}
	}
	turns.end(0, true)
	turns.begin(1)
	if got := turns.order(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("the second is busy, and the order is %d", got)
	}
}

// foreign is a dialect of another kind.
type foreign struct{ *spelling }

func (foreign) Kind() string { return "foreign" }

// Engines that are not started are not asked, and say nothing of what those can that are.
func TestTemplatesPassOverWhoIsAway(t *testing.T) {
	_, cannot := newSpelling(t, func(s *spelling) { s.can = false })
	fine, away := newSpelling(t, nil)
	gone := map[int]bool{1: true}
	templates, err := NewTemplates(TemplatesOptions{Engines: []*Engine{cannot, away}, Away: func(i int) bool { return gone[i] }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := templates.Encode(t.Context(), "a"); !errors.Is(err, ErrNoTokenizer) || fine.asked.Load() != 0 {
		t.Errorf("%v; asked %d times", err, fine.asked.Load())
	}
	gone[0] = true
	if _, err := templates.Encode(t.Context(), "a"); !errors.Is(err, port.ErrEngineDown) || errors.Is(err, ErrNoTokenizer) {
		t.Errorf("none is there, and it says %v", err)
	}
	gone[1] = false
	if got, err := templates.Encode(t.Context(), "a"); err != nil || string(got) != "a" {
		t.Errorf("%q, %v", string(got), err)
	}
}

func TestScoreSequenceIsInTheVocabulary(t *testing.T) {
	for _, vocabulary := range []int{0, 2, 64, 151936} {
		tokens := scoreSequence(vocabulary)
		if slices.Min(tokens) < 0 || vocabulary > 0 && int(slices.Max(tokens)) >= vocabulary {
			t.Errorf("vocabulary %d: %v", vocabulary, tokens)
		}
	}
}
