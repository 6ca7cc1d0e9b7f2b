package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// EvaluatorOptions say what an Evaluator plays, and where.
type EvaluatorOptions struct {
	ShareOptions
	// Cells: cells in other processes ask for held-out prompts as well.
	Cells bool
	// Attempts is how often a prompt is tried that the infrastructure fails; 0 means 3.
	Attempts int
	// Clock is the time in nanoseconds in which this process can hear others, never falling.
	Clock func() int64
	// Logf is told of prompts that a cell has not played.
	Logf func(format string, args ...any)
}

// Evaluator plays held-out prompts beside a run. They are not the loop's: none of them is in its log, its ledger, its
// staleness or its batches. They have slots of their own. Prompts are dealt as players ask for them: the share of this
// process, and those of cells.
type Evaluator struct {
	opt EvaluatorOptions
	own *Share

	mu sync.Mutex
	// under is the evaluation that is under way, nil for none. Hands are those of players that have asked, by their cell,
	// empty for this process.
	under *underEvaluation
	hands map[string]*hand
}

// Evaluation is what came of held-out prompts.
type Evaluation struct {
	// Scored prompts have a reward. Data failed by their task. Infra failed in their last attempt, or no engine was there.
	Scored, Infra, Data int
	// Reward is the mean of scored prompts, Accuracy the share of them that were wholly right.
	Reward, Accuracy float64
	// Oldest and Newest are the versions that sampled: engines may switch meanwhile.
	Oldest, Newest loop.Version
}

// NewEvaluator prepares evaluations. The run is to be given Engines, so that no evaluation runs while one switches. Attempts
// here end with ctx.
func NewEvaluator(ctx context.Context, opt EvaluatorOptions) (*Evaluator, error) {
	opt.Attempts = cmp.Or(opt.Attempts, 3)
	own, err := NewShare(ctx, opt.ShareOptions)
	if err != nil {
		return nil, err
	}
	if own.most < 1 && !opt.Cells {
		return nil, errors.New("cell: no slot to evaluate in")
	}
	return &Evaluator{opt: opt, own: own, hands: make(map[string]*hand)}, nil
}

// Engines are the run's engines, to be used instead of those of the options.
func (e *Evaluator) Engines() []port.Engine { return e.own.Engines() }

// Evaluate has that many held-out prompts played, from 1, beginning while engines serve version. It returns when all are
// scored or have failed. It returns without the rest when no engine has been there to play it for a cell's lease. An error
// says that none could be scored, or that the context ended.
func (e *Evaluator) Evaluate(ctx context.Context, version loop.Version, prompts int) (Evaluation, error) {
	u, err := e.begin(version, prompts)
	if err != nil {
		return Evaluation{}, err
	}
	e.askOwn()
	every := time.NewTicker(Lease / 4)
	defer every.Stop()
	for over := false; !over; {
		select {
		case <-u.done:
			over = true
		case <-ctx.Done():
			over = true
		case <-e.own.News():
			e.askOwn()
		case <-every.C:
			e.askOwn()
			over = e.look(u)
		}
	}
	e.end()
	e.askOwn() // what plays here ends
	e.own.Wait()
	if ctx.Err() != nil {
		return Evaluation{}, ctx.Err()
	}
	return u.result(prompts)
}

// begin begins an evaluation.
func (e *Evaluator) begin(version loop.Version, prompts int) (*underEvaluation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.under != nil {
		return nil, fmt.Errorf("cell: version %d is to be evaluated while version %d is", version, e.under.version)
	}
	u := &underEvaluation{version: version, attempts: e.opt.Attempts, left: prompts, done: make(chan struct{}), seen: e.opt.Clock(),
		found: Evaluation{Oldest: loop.NoVersion, Newest: loop.NoVersion}}
	for i := range prompts {
		u.waiting = append(u.waiting, waitingTry{Try: Try{Prompt: int32(i + 1), Attempt: 1}})
	}
	if prompts == 0 {
		close(u.done)
	}
	e.under = u
	return u, nil
}

// end ends the evaluation that is under way. Players learn of it when they ask.
func (e *Evaluator) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.under = nil
	for _, h := range e.hands {
		h.tries = nil
	}
}

// askOwn has the share of this process ask.
func (e *Evaluator) askOwn() { e.own.Take(e.Deal("", 1, e.own.Ask())) }

// Deal takes what a player says that asks for held-out prompts, and returns what it is to play. The player is the process
// of a cell, by its incarnation. Attempts of an earlier process are made again.
func (e *Evaluator) Deal(cell string, incarnation int64, a Ask) Deal {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := Deal{Number: a.Number}
	h := e.hands[cell]
	switch {
	case h == nil:
		h = &hand{incarnation: incarnation}
		e.hands[cell] = h
	case h.incarnation > incarnation:
		return d
	case h.incarnation < incarnation:
		e.giveBack(cell, h, "is another process now")
		h.incarnation = incarnation
	}
	h.heard, h.slots = e.opt.Clock(), a.Slots
	u := e.under
	if u == nil {
		return d
	}
	if a.Version == u.version {
		for i := range a.Ended {
			u.take(cell, h, &a.Ended[i])
		}
	}
	u.fill(cell, h, e.others(cell))
	if cell != "" && len(u.waiting) > 0 {
		e.own.news()
	}
	d.Version, d.Hand = u.version, slices.Clone(h.tries)
	return d
}

// others reports whether a player other than one of a cell is there.
func (e *Evaluator) others(cell string) bool {
	for name, h := range e.hands {
		if name != cell && e.there(h) {
			return true
		}
	}
	return false
}

// there reports whether a player has slots, and has asked within a lease.
func (e *Evaluator) there(h *hand) bool {
	return h.slots > 0 && e.opt.Clock()-h.heard <= Lease.Nanoseconds()
}

// look has prompts played again that a silent player has in hand. It reports whether nobody has been there for a lease.
func (e *Evaluator) look(u *underEvaluation) (over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.opt.Clock()
	for cell, h := range e.hands {
		silent := cell != "" && now-h.heard > Lease.Nanoseconds()
		if silent {
			e.giveBack(cell, h, fmt.Sprintf("has asked for none for %v", Lease))
		}
		if e.there(h) || len(h.tries) > 0 {
			u.seen = now
		}
	}
	return now-u.seen > Lease.Nanoseconds()
}

// giveBack has prompts played again that a process of a cell has in hand.
func (e *Evaluator) giveBack(cell string, h *hand, why string) {
	if len(h.tries) == 0 || e.under == nil {
		return
	}
	e.opt.Logf("evaluating version %d: cell %s %s, and had %d held-out prompts under way: they are tried again where attempts are left", e.under.version, cell, why, len(h.tries))
	for _, t := range slices.Clone(h.tries) {
		e.under.take(cell, h, &Outcome{Try: t, Failed: FailedInfra, Error: fmt.Sprintf("cell %s %s", cell, why)})
	}
	e.own.news()
}

// hand is that of a player.
type hand struct {
	incarnation int64
	// heard is when it asked last, slots is how many attempts it can play at once.
	heard int64
	slots int
	tries []Try
}

// underEvaluation is an evaluation that is under way.
type underEvaluation struct {
	version  loop.Version
	attempts int
	// seen is when somebody was there to play, or it began.
	seen    int64
	waiting []waitingTry
	// left is how many prompts have no outcome. Done is closed when none is left.
	left int
	done chan struct{}
	// found counts, sum is the sum of rewards, exact how many were wholly right, last the last failure.
	found Evaluation
	sum   float64
	exact int
	last  string
}

// waitingTry is an attempt that nobody has in hand. The one before failed at a cell.
type waitingTry struct {
	Try
	failedAt string
}

// take takes an outcome of a player, if it has the attempt in hand.
func (u *underEvaluation) take(cell string, h *hand, o *Outcome) {
	i := slices.Index(h.tries, o.Try)
	if i < 0 {
		return
	}
	h.tries = slices.Delete(h.tries, i, i+1)
	switch {
	case o.Failed == "":
		u.found.Scored++
		u.sum += float64(o.Reward)
		if o.Exact {
			u.exact++
		}
		if o.Oldest >= 0 && (u.found.Oldest == loop.NoVersion || o.Oldest < u.found.Oldest) {
			u.found.Oldest = o.Oldest
		}
		u.found.Newest = max(u.found.Newest, o.Newest)
	case o.Failed == FailedData:
		u.found.Data, u.last = u.found.Data+1, o.Error
	case int(o.Attempt) < u.attempts:
		u.waiting = append(u.waiting, waitingTry{Try{Prompt: o.Prompt, Attempt: o.Attempt + 1}, cell})
		return
	default:
		u.found.Infra, u.last = u.found.Infra+1, o.Error
	}
	if u.left--; u.left == 0 {
		close(u.done)
	}
}

// fill deals a player as many attempts as it has slots. One that failed there goes to another player, if there is one.
func (u *underEvaluation) fill(cell string, h *hand, others bool) {
	room := min(h.slots, handMost) - len(h.tries)
	u.waiting = slices.DeleteFunc(u.waiting, func(w waitingTry) bool {
		if room <= 0 || others && w.Attempt > 1 && w.failedAt == cell {
			return false
		}
		room--
		h.tries = append(h.tries, w.Try)
		return true
	})
}

// result is what came of all prompts. Those that nobody has played are the infrastructure's.
func (u *underEvaluation) result(prompts int) (Evaluation, error) {
	out := u.found
	if out.Infra += u.left; out.Scored == 0 {
		if u.left > 0 {
			u.last = fmt.Sprintf("no engine with slots to evaluate in was there for %v", Lease)
		}
		return Evaluation{}, fmt.Errorf("cell: none of %d held-out prompts could be scored: %s", prompts, u.last)
	}
	out.Reward, out.Accuracy = u.sum/float64(out.Scored), float64(u.exact)/float64(out.Scored)
	return out, nil
}
