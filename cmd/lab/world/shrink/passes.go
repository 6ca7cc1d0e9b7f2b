package shrink

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
)

// passes make smaller plans of one: each makes other changes, the largest ones first. Every change leaves fewer or
// smaller things, so that a search ends.
var passes = []func(plan.Plan) []candidate{fewerFaults, fewerHosts, plainer, plainerTrainer, fewerSteps, smallerGroups, plainerChats, earlierFaults, smallerFaults}

// fewerFaults leaves out halves of the faults, then quarters, down to one.
func fewerFaults(p plan.Plan) []candidate {
	var found []candidate
	n := len(p.Faults)
	for size := (n + 1) / 2; size >= 1; size /= 2 {
		for at := 0; at < n; at += size {
			c := p
			c.Faults = slices.Delete(slices.Clone(p.Faults), at, min(at+size, n))
			found = append(found, candidate{c, fmt.Sprintf("%d of %d faults", len(c.Faults), n)})
		}
	}
	return found
}

// fewerHosts leaves out one host with its faults, the last of its role first.
func fewerHosts(p plan.Plan) []candidate {
	var found []candidate
	leave := func(role string, n, least int, change func(c *plan.Plan, i int)) {
		for i := n - 1; i >= 0 && n > least; i-- {
			c := without(p, role, i)
			change(&c, i)
			found = append(found, candidate{c, fmt.Sprintf("without %s%d", role, i)})
		}
	}
	leave("plane", p.Planes, 1, func(c *plan.Plan, _ int) { c.Planes-- })
	if p.Brokers > 0 {
		found = append(found, candidate{oneBroker(p), "one broker"})
	}
	if p.Planes == 1 && !p.Embedded && p.Brokers == 0 && !p.Store.NoTrace && len(p.Cells()) == 0 {
		c := p
		c.Embedded = true
		c.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f plan.Fault) bool {
			return f.Host == "broker" || f.Other == "broker" || f.Await.By == "broker"
		})
		found = append(found, candidate{c, "without the broker's host"})
	}
	leave("receiver", p.Receivers, 0, func(c *plan.Plan, _ int) { c.Receivers-- })
	leave("engine", len(p.Engines), 1, func(c *plan.Plan, i int) { c.Engines = slices.Delete(slices.Clone(p.Engines), i, i+1) })
	for _, number := range p.Cells() {
		found = append(found, candidate{withoutCell(p, number), "without " + plan.CellName(number)})
	}
	leave("worker", p.Workers, 1, func(c *plan.Plan, _ int) { c.Workers-- })
	return found
}

// oneBroker has the faults of a cluster's first server come over one broker, and leaves out those of the others.
func oneBroker(p plan.Plan) plan.Plan {
	for i := p.Brokers - 1; i > 0; i-- {
		p = without(p, "broker", i)
	}
	first := func(host string) string {
		if host == "broker0" {
			return "broker"
		}
		return host
	}
	p.Brokers = 0
	for i := range p.Faults {
		f := &p.Faults[i]
		f.Host, f.Other, f.Await.By = first(f.Host), first(f.Other), first(f.Await.By)
	}
	return p
}

// plainer takes back how planes keep what they have, one key at a time.
func plainer(p plan.Plan) []candidate {
	var found []candidate
	for _, key := range []struct {
		name string
		set  func(s *plan.Store)
	}{
		{"with a trace", func(s *plan.Store) { s.NoTrace = false }},
		{"with few snapshots", func(s *plan.Store) { s.SnapshotEvery = 0 }},
		{"with short prompts", func(s *plan.Store) { s.Prompt = 0 }},
		{"with room for payloads", func(s *plan.Store) { s.PayloadBytesMax = 0 }},
	} {
		c := p
		key.set(&c.Store)
		if c.Store != p.Store {
			found = append(found, candidate{c, key.name})
		}
	}
	return found
}

// plainerTrainer takes away one thing that a trainer does beside training, or a rank.
func plainerTrainer(p plan.Plan) []candidate {
	var found []candidate
	plainer := func(there bool, said string, change func(t *plan.Trainer)) {
		if there {
			c := p
			change(&c.Trainer)
			found = append(found, candidate{c, said})
		}
	}
	t := p.Trainer
	plainer(t.Ranks > 1, fmt.Sprintf("%d ranks", t.Ranks-1), func(t *plan.Trainer) { t.Ranks-- })
	plainer(t.Acks, "without acks", func(t *plan.Trainer) { t.Acks = false })
	plainer(t.Ahead, "without groups ahead", func(t *plan.Trainer) { t.Ahead = false })
	plainer(t.References, "without references", func(t *plan.Trainer) { t.References, t.Ahead = false, false })
	plainer(t.Back > 0, "without handing back", func(t *plan.Trainer) { t.Back = 0 })
	plainer(t.Floats > 0, "a small model", func(t *plan.Trainer) { t.Floats = 0 })
	plainer(t.Window > 0, "wide connections", func(t *plan.Trainer) { t.Window = 0 })
	return found
}

// without leaves out the faults of a host, and gives those of later hosts of its role their new names.
func without(p plan.Plan, role string, gone int) plan.Plan {
	renamed := func(host string) (string, bool) {
		number, ok := strings.CutPrefix(host, role)
		i, err := strconv.Atoi(number)
		if !ok || err != nil || i < gone {
			return host, true
		}
		return role + strconv.Itoa(i-1), i > gone
	}
	var faults []plan.Fault
	for _, f := range p.Faults {
		var host, other bool
		f.Host, host = renamed(f.Host)
		f.Other, other = renamed(f.Other)
		var by bool
		if f.Await.By, by = renamed(f.Await.By); !by {
			f.Await = plan.Await{}
		}
		if host && other {
			faults = append(faults, f)
		}
	}
	p.Faults = faults
	return p
}

// withoutCell gives the engines of a cell to the planes, and leaves out its faults.
func withoutCell(p plan.Plan, number int) plan.Plan {
	name := plan.CellName(number)
	p.Engines = slices.Clone(p.Engines)
	for i := range p.Engines {
		if p.Engines[i].Cell == number {
			p.Engines[i].Cell = 0
		}
	}
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f plan.Fault) bool { return f.Host == name || f.Other == name })
	for i := range p.Faults {
		if p.Faults[i].Await.By == name {
			p.Faults[i].Await = plan.Await{}
		}
	}
	return p
}

// fewerSteps makes a run shorter.
func fewerSteps(p plan.Plan) []candidate {
	var found []candidate
	for _, steps := range append(below(p.Steps, 1), p.Steps-1) {
		if steps < 1 {
			continue
		}
		c := p
		c.Steps = steps
		found = append(found, candidate{c, fmt.Sprintf("%d steps", steps)})
	}
	return found
}

// smallerGroups makes groups of one rollout, batches of one group, and places rollouts as usual.
func smallerGroups(p plan.Plan) []candidate {
	var found []candidate
	if size := p.Rules.GroupSize; size > 1 {
		c := p
		c.Rules.GroupSize, c.Rules.Batch = 1, p.Rules.Batch/size
		found = append(found, candidate{c, "groups of 1"})
	}
	if size := p.Rules.GroupSize; size > 0 && p.Rules.Batch > size {
		c := p
		c.Rules.Batch = size
		found = append(found, candidate{c, "batches of 1 group"})
	}
	if p.Rules.CacheAware {
		c := p
		c.Rules.CacheAware = false
		found = append(found, candidate{c, "placed by load"})
	}
	return found
}

// plainerChats leaves the chats out, or one thing that they have.
func plainerChats(p plan.Plan) []candidate {
	if p.Chat == nil {
		return nil
	}
	var found []candidate
	plainer := func(change string, to *plan.Chat) {
		c := p
		c.Chat = to
		if to == nil || *to != *p.Chat {
			found = append(found, candidate{c, change})
		}
	}
	with := func(change func(c *plan.Chat)) *plan.Chat {
		c := *p.Chat
		change(&c)
		return &c
	}
	plainer("without chats", nil)
	plainer("without players in planes", with(func(c *plan.Chat) { c.Players, c.Environment = 0, false }))
	plainer("without an environment", with(func(c *plan.Chat) { c.Environment = false }))
	plainer("without hurry", with(func(c *plan.Chat) { c.LeaveMS = 0 }))
	plainer("without streams", with(func(c *plan.Chat) { c.Stream = false }))
	plainer("chats of 1 turn", with(func(c *plan.Chat) { c.Turns = 1 }))
	plainer("requests for 1 choice", with(func(c *plan.Chat) { c.Choices = 1 }))
	return found
}

// earlierFaults brings the time of all faults, or of one, nearer to the run's start.
func earlierFaults(p plan.Plan) []candidate {
	var found []candidate
	all := p
	all.Faults = slices.Clone(p.Faults)
	for i := range all.Faults {
		all.Faults[i].AtMS /= 2
	}
	if !slices.Equal(all.Faults, p.Faults) {
		found = append(found, candidate{all, "all faults in half the time"})
	}
	return found
}

// smallerFaults makes one fault shorter or weaker.
func smallerFaults(p plan.Plan) []candidate {
	var found []candidate
	for i, f := range p.Faults {
		smaller := func(f plan.Fault, change string) {
			c := p
			c.Faults = slices.Clone(p.Faults)
			c.Faults[i] = f
			found = append(found, candidate{c, fmt.Sprintf("%s of %s %s", f.Kind, f.Host, change)})
		}
		if f.Await != (plan.Await{}) {
			alone := f
			alone.Await = plan.Await{}
			smaller(alone, "that waits for nothing")
		}
		for _, n := range below(f.Await.N, 1) {
			early := f
			early.Await.N = n
			smaller(early, fmt.Sprintf("at event %d", n))
		}
		for _, ms := range below(f.Await.LaterMS, 0) {
			soon := f
			soon.Await.LaterMS = ms
			smaller(soon, fmt.Sprintf("%d ms after its event", ms))
		}
		if f.Both {
			one := f
			one.Both = false
			smaller(one, "one way")
		}
		for _, ms := range below(f.ForMS, 1) {
			short := f
			short.ForMS = ms
			smaller(short, fmt.Sprintf("for %d ms", ms))
		}
		for _, ms := range below(max(f.ByMS, -f.ByMS), 1) {
			near := f
			near.ByMS = ms
			if f.ByMS < 0 {
				near.ByMS = -ms
			}
			smaller(near, fmt.Sprintf("by %d ms", near.ByMS))
		}
		for _, n := range below(f.N, 1) {
			few := f
			few.N = n
			smaller(few, fmt.Sprintf("with n %d", n))
		}
	}
	return found
}

// below are a few numbers from the least one up to nine tenths of n, the smallest first.
func below[N int | int64 | uint64](n, least N) []N {
	var found []N
	for _, m := range []N{least, n / 10, n / 2, n - n/10 - 1} {
		if m >= least && m < n && !slices.Contains(found, m) {
			found = append(found, m)
		}
	}
	return found
}
