package embedded

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
)

// run is the decoding goroutine.
func (e *Engine) run() {
	defer close(e.stopped)
	for e.prepare() {
		began, after := time.Now(), e.end
		version := e.served.version
		logits, err := e.decoder.Step(e.served.parameters, e.rows)
		active := e.active
		if err != nil {
			e.fail(fmt.Errorf("engine %s: decoding: %w", e.opt.Name, err))
			continue
		}
		if !e.pace(began) {
			continue // closed while it waited; prepare ends what runs
		}
		e.deliver(logits, version)
		now := time.Now()
		// Between steps that follow one another nothing may go uncounted.
		if after.IsZero() {
			after = began
		}
		e.times.add(active, e.busy.Load(), now.Sub(after))
		e.end = now
	}
}

// prepare makes the changes that wait for a step's end and lays out the next
// step. It blocks while there is nothing to decode and returns false when the
// engine is closed.
func (e *Engine) prepare() bool {
	for {
		select {
		case <-e.closing:
			e.fail(fmt.Errorf("engine %s: %w", e.opt.Name, ErrClosed))
			return false
		default:
		}
		e.reap()
		e.admit()
		if e.active > 0 {
			return true
		}
		e.end = time.Time{}
		select {
		case <-e.wake:
		case <-e.closing:
		}
	}
}

// reap frees the slots of generations whose callers have left or want what there is.
func (e *Engine) reap() {
	for s, g := range e.slots {
		if g != nil && g.leaving() {
			e.slots[s] = nil
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.waiting[:0]
	for _, g := range e.waiting {
		if !g.leaving() {
			kept = append(kept, g)
		}
	}
	clear(e.waiting[len(kept):])
	e.waiting = kept
}

// leaving reports whether the generation is to stop here, and ends it if its
// caller waits for what there is.
func (g *generation) leaving() bool {
	if g.cancelled.Load() {
		return true
	}
	if g.halted.Load() {
		g.interrupted = true
		g.end(nil)
		return true
	}
	return false
}

// admit changes the weights if that was asked for, takes waiting generations
// into free slots and lays out the rows of the next step.
func (e *Engine) admit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.change; c != nil {
		e.served, e.change = c.to, nil
		close(c.done)
	}
	e.rows, e.sampled, e.active = e.rows[:0], e.sampled[:0], 0
	for s := range e.slots {
		g := e.slots[s]
		if g == nil {
			if g = e.nextWaiting(); g == nil {
				continue
			}
			e.slots[s] = g
		}
		e.lay(s, g)
	}
}

// nextWaiting takes the longest waiting generation. Before the first weights
// there is none to start.
func (e *Engine) nextWaiting() *generation {
	if e.served.parameters == nil || len(e.waiting) == 0 {
		return nil
	}
	g := e.waiting[0]
	copy(e.waiting, e.waiting[1:])
	e.waiting[len(e.waiting)-1] = nil
	e.waiting = e.waiting[:len(e.waiting)-1]
	return g
}

// lay adds a slot's rows to the step: at first its prompt, and what there is of
// its response; then the token it sampled last.
func (e *Engine) lay(slot int, g *generation) {
	e.active++
	e.sampled = append(e.sampled, slot)
	n := int(g.made.Load())
	from := n - 1
	if !g.fed {
		g.fed, from = true, 0
		e.rows = appendPrompt(e.rows, slot, e.opt.PromptTokens, g.req.Prompt)
		e.rows[len(e.rows)-1].Logits = n == 0
	}
	for i := from; i < n; i++ {
		e.rows = append(e.rows, transformer.Row{
			Slot: int32(slot), Position: int32(e.opt.PromptTokens + i), Token: g.tokens[i], Logits: i == n-1})
	}
}

// appendPrompt adds a prompt's rows, its last token at position promptTokens−1.
func appendPrompt(rows []transformer.Row, slot, promptTokens int, prompt []int32) []transformer.Row {
	first := promptTokens - len(prompt)
	for i, token := range prompt {
		rows = append(rows, transformer.Row{
			Slot: int32(slot), Position: int32(first + i), Token: token, Start: i == 0, Logits: i == len(prompt)-1})
	}
	return rows
}

// deliver samples a token for every active slot and ends what is complete. Weights may be finite and
// overflow on the way: a response then ends with an error, as one does whose server sends no log-prob.
func (e *Engine) deliver(logits []float32, version loop.Version) {
	v := e.opt.Model.Vocabulary
	for i, slot := range e.sampled {
		g := e.slots[slot]
		n := int(g.made.Load())
		g.tokens[n], g.logprobs[n] = transformer.Sample(logits[i*v:(i+1)*v], g.draws.uniform(n))
		if p := float64(g.logprobs[n]); math.IsNaN(p) || math.IsInf(p, 0) {
			e.slots[slot] = nil
			g.end(fmt.Errorf("engine %s: version %d gives no finite probabilities: token %d of rollout %v has the log-prob %g", e.opt.Name, version, n, g.req.Rollout, p))
			continue
		}
		g.versions[n] = version
		g.made.Store(int32(n + 1))
		if n == 0 {
			g.first <- version
		}
		switch {
		case g.tokens[n] == e.opt.End, g.req.Sampling != nil && slices.Contains(g.req.Sampling.StopTokens, g.tokens[n]):
		case n+1 == g.req.MaxTokens:
			g.truncated = true
		case g.req.Check != nil && g.req.Check(g.tokens[:n+1:n+1]):
			g.pruned = true
		default:
			continue
		}
		e.slots[slot] = nil
		g.end(nil)
	}
}

// fail ends everything that runs and waits with an error.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s, g := range e.slots {
		if g != nil {
			e.slots[s] = nil
			g.end(err)
		}
	}
	for _, g := range e.waiting {
		g.end(err)
	}
	e.waiting = nil
	e.end = time.Time{}
}

// pace waits until the least time of a step has passed; false means that the
// engine was closed meanwhile.
func (e *Engine) pace(began time.Time) bool {
	if e.opt.DecodeStepS <= 0 {
		return true
	}
	if e.end.IsZero() {
		e.pacer.Rest()
	}
	left := e.pacer.Step(began, time.Now(), time.Duration(e.opt.DecodeStepS*float64(time.Second)))
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.closing:
		return false
	}
}
