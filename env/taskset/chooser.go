package taskset

import (
	"errors"
	"fmt"
	"math"
)

// Rule says which tasks teach nothing: those of which every scored attempt was solved, or none. Only
// such are played less. The zero Rule plays all alike.
type Rule struct {
	// ScoredMin is how many scored attempts a task has before the rule says anything of it; 0 is no rule.
	ScoredMin int64
	// Share of its turns that a task that teaches nothing is played all the same, from 0 to 1. So it is noticed when
	// the policy begins to solve it or forgets how. 0 skips it for good.
	Share float64
}

// Chooser chooses what groups play. The loop says a prompt's number and, with a curriculum, a level, which it has chosen
// by the solve rates of levels (see loop: filter.curriculum). The feed keeps to that level and goes on from that number
// to the next task of the level that the rule lets through. So levels are the loop's choice and the tasks within one
// the feed's, and the two cannot work against each other. The loop's own filters (filter.solve_rate) judge groups that
// were played; the feed spares playing them.
//
// A choice is a function of the counts, the seed and the group at the time the group is first
// asked for. It is kept with the counts, so that siblings, retries and a process after a crash get the same task. The
// counts may have gone on meanwhile.
type Chooser struct {
	set    *Set
	counts *Counts
	rule   Rule
	seed   uint64
}

// NewChooser makes a chooser. The counts are the run's, and the set the one that their choices were made
// on: numbers of another set name other tasks.
func NewChooser(set *Set, counts *Counts, rule Rule, seed uint64) (*Chooser, error) {
	if rule.ScoredMin < 0 || !(rule.Share >= 0 && rule.Share <= 1) {
		return nil, fmt.Errorf("taskset: a rule of %d attempts and a share of %g: want 0 or more, and a share from 0 to 1", rule.ScoredMin, rule.Share)
	}
	return &Chooser{set, counts, rule, seed}, nil
}

// tries bounds how far a feed looks for a task that teaches. Where all of them teach nothing, the
// one that was asked for is played.
const tries = 64

// pinsMax bounds the groups whose choices are kept: the oldest are long over by then.
const pinsMax = 1 << 16

// ErrUnwritten is wrapped by the error of [Chooser.At]. It is of the file of counts, and not of the task.
var ErrUnwritten = errors.New("the choice of a task cannot be written down")

// At returns the task that a group plays which the loop has given a number and a level. An error wraps ErrUnwritten: the
// caller asks for the same group again, as siblings must get the same task after a crash, too.
func (f *Chooser) At(group, prompt int64, level int) (*Task, error) {
	if f.rule.ScoredMin == 0 || group < 1 {
		return f.set.At(prompt, level), nil
	}
	b := f.counts
	b.mu.Lock()
	defer b.mu.Unlock()
	if number, kept := b.pins[group]; kept {
		return f.set.At(number, level), nil
	}
	task, number := f.choose(group, prompt, level)
	b.forget()
	b.pins[group] = number
	if err := b.append(pinLine(group, number)); err != nil {
		delete(b.pins, group)
		return nil, fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	return task, nil
}

func (f *Chooser) choose(group, prompt int64, level int) (*Task, int64) {
	first := f.set.At(prompt, level)
	task, number := first, prompt
	for try := range int64(tries) {
		if f.teaches(task.ID) || f.draw(group, try) < f.rule.Share {
			return task, number
		}
		if number == math.MaxInt64 {
			break
		}
		number++
		if task = f.set.At(number, level); task.ID == first.ID {
			break // once around
		}
	}
	return first, prompt
}

// teaches: the task's attempts are too few to say, or differ.
func (f *Chooser) teaches(id string) bool {
	t := f.counts.tallies[id]
	if t == nil {
		return true
	}
	scored := t.attempts - t.failed
	return scored < f.rule.ScoredMin || t.solved != 0 && t.solved != scored
}

// draw is uniform in [0, 1): a function of the seed, the group and the try.
func (f *Chooser) draw(group, try int64) float64 {
	x := f.seed
	for _, n := range [2]int64{group, try} {
		x += 0x9e3779b97f4a7c15 + uint64(n)*0xd1342543de82ef95
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		x *= 0x94d049bb133111eb
		x ^= x >> 31
	}
	return float64(x>>11) / (1 << 53)
}

// forget drops the choices of the oldest groups once there are twice too many.
func (b *Counts) forget() {
	if len(b.pins) < 2*pinsMax {
		return
	}
	newest := int64(0)
	for group := range b.pins {
		newest = max(newest, group)
	}
	for group := range b.pins {
		if group <= newest-pinsMax {
			delete(b.pins, group)
		}
	}
}
