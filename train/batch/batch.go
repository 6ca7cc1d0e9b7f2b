package batch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
	"github.com/headway-rl/headway/train/microbatch"
)

// Options say how a batch is made of groups.
type Options struct {
	// Vocabulary is the number of token ids: ids are from 0 to one less. 0 leaves only negative ids out.
	Vocabulary int
	// NormalizeStd divides advantages by the standard deviation of their group's rewards.
	NormalizeStd bool
	// Kind is protocol.KindTrain, which "" stands for, or protocol.KindValidation, whose samples have no advantages.
	Kind string
	// Channels are the side channels that the run asks engines for. One without a row in the whole batch is absent in
	// this form.
	Channels []channel.Header
	// Lost, if not nil, is told once of every blob that the store has lost, or that does not verify. It gets the channel's
	// name and how many of the blob's rows the batch had. The goroutine that reads a channel calls it.
	Lost func(name string, rows int, err error)
}

// Batch is a batch that has been checked, with its advantages. It refers to the
// samples that it was made of, which must not change. Its methods are safe for
// concurrent use.
type Batch struct {
	lease      protocol.Lease
	groups     []port.Group
	advantages [][]float32 // by group and sample
	clean      [][]bool    // what the mask leaves out is as the form wants it already
	asked      []channel.Header
	// branched: a rollout of it left several sequences.
	branched bool

	tell func(name string, rows int, err error)

	mu    sync.Mutex
	plans map[int][][]int   // by the number of ranks: the groups of each
	lost  map[blob]struct{} // whose rows are absent
}

// New checks a batch and computes its advantages, each over its whole group. The
// error names the rollout and the token that cannot be trained on, and what was expected.
func New(b port.Batch, o Options) (*Batch, error) {
	b.Groups = port.TrainedGroups(b.Groups)
	p := &Batch{groups: b.Groups, asked: o.Channels, tell: o.Lost, plans: make(map[int][][]int), lost: make(map[blob]struct{})}
	o.Kind = cmp.Or(o.Kind, protocol.KindTrain)
	p.lease = protocol.Lease{Lease: b.Lease, Attempt: b.Attempt, Kind: o.Kind, Version: b.Version, Groups: len(b.Groups)}
	if b.Version < 0 || b.Version > math.MaxInt32 {
		return nil, fmt.Errorf("batch: it starts from version %d, want from 0 to %d", b.Version, math.MaxInt32)
	}
	seen := make(map[loop.GroupID]struct{}, len(b.Groups))
	for i := range b.Groups {
		g := &b.Groups[i]
		if _, twice := seen[g.ID]; twice {
			return nil, fmt.Errorf("batch: group %d occurs twice, want each group once", g.ID)
		}
		seen[g.ID] = struct{}{}
		if err := checkGroup(g, b.Version); err != nil {
			return nil, err
		}
		if err := p.add(g, o); err != nil {
			return nil, err
		}
	}
	if n := len(b.Groups); n > 0 {
		p.lease.StalenessMean /= float64(n)
	}
	if !p.branched {
		p.lease.Sequences = 0
	}
	slices.Sort(p.lease.Agents)
	p.lease.Agents = slices.Compact(p.lease.Agents)
	return p, nil
}

// add counts a group, and appends its advantages.
func (p *Batch) add(g *port.Group, o Options) error {
	staleness := p.lease.Version - g.StartVersion
	p.lease.StalenessMean += float64(staleness)
	p.lease.StalenessMax = max(p.lease.StalenessMax, staleness)
	p.lease.Rollouts += len(g.Samples)
	rewards, advantages := make([]float32, len(g.Samples)), make([]float32, len(g.Samples))
	clean := make([]bool, len(g.Samples))
	for i := range g.Samples {
		s := &g.Samples[i]
		c, err := checkSample(s, p.lease.Version, o.Vocabulary)
		if err != nil {
			return err
		}
		clean[i], rewards[i] = c.clean, s.Reward
		p.branched = p.branched || len(s.Breaks) > 0
		p.lease.Sequences += s.Sequences()
		for _, a := range s.Agents {
			p.lease.Agents = append(p.lease.Agents, a.Name)
		}
		p.lease.Tokens += len(s.Tokens)
		p.lease.ResponseTokens += c.response
	}
	if o.Kind == protocol.KindTrain {
		grpo.Advantages(advantages, rewards, o.NormalizeStd)
	}
	for i, a := range advantages {
		if !finite(a) {
			return fmt.Errorf("batch: rollout %s has the advantage %g from the rewards %v of its group, want a finite number: bring the rewards into a smaller range",
				name(g.Samples[i].ID), a, rewards)
		}
	}
	p.advantages, p.clean = append(p.advantages, advantages), append(p.clean, clean)
	return nil
}

// Lease is what the header of the whole batch says, its stamps and deadline apart.
func (p *Batch) Lease() protocol.Lease { return p.lease }

// Share makes the body of one rank's part, or of the whole batch with a worldSize of
// 0 or 1. Parts are of whole groups, balanced by tokens, and the same for every caller; together they are the batch. A
// rank has no group where there are fewer groups than ranks: its body is well-formed and of no rollout. The argument
// deadlineS is how long the lease lasts.
func (p *Batch) Share(rank, worldSize int, deadlineS float64) (*Body, error) {
	worldSize = max(worldSize, 1)
	if rank < 0 || rank >= worldSize {
		return nil, fmt.Errorf("batch: rank %d of %d, want from 0 to %d", rank, worldSize, worldSize-1)
	}
	groups, err := p.plan(worldSize)
	if err != nil {
		return nil, err
	}
	lease := p.lease
	lease.Rank, lease.WorldSize, lease.DeadlineS = rank, worldSize, deadlineS
	return newBody(p, lease, groups[rank], true)
}

// plan returns the groups of each rank, ascending.
func (p *Batch) plan(ranks int) ([][]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if plan, ok := p.plans[ranks]; ok {
		return plan, nil
	}
	plan := make([][]int, ranks)
	if n := min(ranks, len(p.groups)); n > 0 {
		lengths := make([][]int, len(p.groups))
		for g := range p.groups {
			for i := range p.groups[g].Samples {
				eachSequence(&p.groups[g].Samples[i], func(first, end int) { lengths[g] = append(lengths[g], end-first) })
			}
		}
		assigned, err := microbatch.Assign(lengths, microbatch.Settings{Ranks: n})
		if err != nil {
			return nil, fmt.Errorf("batch: %w", err)
		}
		for r, parts := range assigned.Ranks {
			plan[r] = groupsOf(parts)
		}
	}
	if len(p.plans) < plansMax {
		p.plans[ranks] = plan
	}
	return plan, nil
}

// plansMax bounds how many numbers of ranks a batch remembers its division over: a
// lease has one, and what a client asks for besides must not fill the memory.
const plansMax = 8

// groupsOf lists the groups of a rank's one part; its samples are in their order.
func groupsOf(parts []microbatch.Batch) []int {
	var out []int
	for i := range parts {
		for _, s := range parts[i].Samples {
			if n := len(out); n == 0 || out[n-1] != s.Group {
				out = append(out, s.Group)
			}
		}
	}
	return out
}
