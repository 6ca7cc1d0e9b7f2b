package episode

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/env/sandbox"
)

// recorder cuts an episode's time into spans. There is always one under way, so that every moment of the
// episode belongs to exactly one. It is safe for concurrent use: what judges may do so elsewhere.
type recorder struct {
	clock func() int64

	mu    sync.Mutex
	now   Span
	done  []Span
	at    int // turn
	ended bool
	// limits count every mark that is a limit, whichever span it was of.
	limits map[sandbox.Class]int
}

func newRecorder(clock func() int64) *recorder {
	return &recorder{clock: clock, now: Span{Kind: Model, StartNS: clock()}, limits: map[sandbox.Class]int{}}
}

type recorderKey struct{}

func (r *recorder) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, recorderKey{}, r)
}

// Enter begins a span of a kind in the episode that ctx belongs to, named where it is a tool's. It
// returns the function that goes back to the kind that was there before. A world calls it where a
// step is made of parts. It does nothing where ctx is of no episode, or of one that is over.
func Enter(ctx context.Context, kind Kind, name string) (back func()) {
	r, ok := ctx.Value(recorderKey{}).(*recorder)
	if !ok {
		return func() {}
	}
	before := r.enter(kind, name)
	return func() { r.enter(before.Kind, before.Name) }
}

// Mark names the limit that the present span met, or its failure, in the episode that ctx belongs to.
func Mark(ctx context.Context, class sandbox.Class) {
	if r, ok := ctx.Value(recorderKey{}).(*recorder); ok {
		r.mark(class)
	}
}

// turn sets the turn of spans that begin from now on.
func (r *recorder) turn(turn int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = turn
}

// enter begins a span now, and returns the one that ends with that.
func (r *recorder) enter(kind Kind, name string) Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enterAt(kind, name, r.clock())
}

// enterAt begins a span at a time since the present one began; r.mu is held.
func (r *recorder) enterAt(kind Kind, name string, ns int64) Span {
	before := r.now
	if r.ended || (kind == before.Kind && name == before.Name && r.at == before.Turn && before.Class == "") {
		return before
	}
	r.close(ns)
	r.now = Span{Kind: kind, Name: name, Turn: r.at, StartNS: r.now.EndNS}
	return before
}

// close ends the present span and keeps it, unless it is empty and says nothing; r.mu is held.
func (r *recorder) close(ns int64) {
	r.now.EndNS = max(ns, r.now.StartNS) // a clock that goes back adds nothing
	if r.now.EndNS > r.now.StartNS || r.now.Class != "" {
		r.done = append(r.done, r.now)
	}
}

// split ends a span of waiting some time after it began and begins one of starting there.
func (r *recorder) split(waited int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Kind == SandboxWait {
		r.enterAt(SandboxStart, "", min(r.now.StartNS+max(waited, 0), r.clock()))
	}
}

func (r *recorder) mark(class sandbox.Class) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.now.Class = class
	if class.Kind().Limit {
		r.limits[class]++
	}
}

// markOnce marks what has not been marked in the present turn yet: a world may have done so itself, span
// by span.
func (r *recorder) markOnce(class sandbox.Class) {
	r.mu.Lock()
	marked := func(s Span) bool { return s.Turn == r.now.Turn && s.Class == class && sameWork(s, r.now) }
	already := marked(r.now) || slices.ContainsFunc(r.done, marked)
	r.mu.Unlock()
	if !already {
		r.mark(class)
	}
}

// fail names the failure that the present span ended with. It counts as no limit.
func (r *recorder) fail(class sandbox.Class) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended && r.now.Class == "" {
		r.now.Class = class
	}
}

// sameWork tells a turn's tools from its judging, which may meet the same limit once more.
func sameWork(a, b Span) bool { return (a.Kind == Verifier) == (b.Kind == Verifier) }

// end ends the last span and returns all of them, with the limits that were met.
func (r *recorder) end() ([]Span, map[sandbox.Class]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.close(r.clock())
	r.ended = true
	return r.done, r.limits
}

// noteMax bounds the words of a failure in a record, in bytes.
const noteMax = 500

// brief is the beginning of a text, for a record.
func brief(text string) string {
	if len(text) > noteMax {
		text = text[:noteMax] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
