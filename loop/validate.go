package loop

import (
	"errors"
	"fmt"
)

// Limits that keep indices within 32 bits and a mistyped config from exhausting memory.
const (
	concurrencyMax = 1 << 24
	groupSizeMax   = 1 << 16
	queueGroupsMax = 1 << 20
	levelsMax      = 1 << 12
	promptsMax     = 1 << 24
	stalenessMax   = 1 << 20
)

// refusals collects what a config cannot be.
type refusals []error

func (r *refusals) add(format string, args ...any) {
	*r = append(*r, fmt.Errorf("loop: "+format, args...))
}

// Validate reports every relation between fields that a loop cannot run with. It changes nothing.
func (c Config) Validate() error {
	var bad refusals
	c.validateSizes(&bad)
	c.validateQueue(&bad)
	c.validateAdmission(&bad)
	c.validateReplay(&bad)
	c.validateShaping(&bad)
	c.validateControl(&bad)
	if c.GroupMin != 0 && (c.OnFailure != ShrinkGroup || c.GroupMin < 1 || c.GroupMin > c.GroupSize) {
		bad.add("GroupMin is %d, want 1 to GroupSize (%d) under ShrinkGroup, or 0: DropGroup ends a group with its first loss", c.GroupMin, c.GroupSize)
	}
	if c.Policy > PolicyReplay || c.Start > StartGang || c.Select > SelectFresh || c.Sync > SyncRestart || c.OnFailure > ShrinkGroup || c.Evict > EvictDrift || c.Placement > PlaceCacheAware {
		bad.add("unknown rule: policy %d, start %d, select %d, sync %d, on failure %d, evict %d, placement %d", c.Policy, c.Start, c.Select, c.Sync, c.OnFailure, c.Evict, c.Placement)
	}
	return errors.Join(bad...)
}

func (c Config) validateSizes(bad *refusals) {
	if c.GroupSize < 1 || c.GroupSize > groupSizeMax {
		bad.add("GroupSize is %d, want 1 to %d", c.GroupSize, groupSizeMax)
	}
	if c.Redundancy < 0 || c.Redundancy > groupSizeMax {
		bad.add("Redundancy is %d, want 0 to %d", c.Redundancy, groupSizeMax)
	}
	if c.BatchGroups < 1 || c.BatchGroups > queueGroupsMax {
		bad.add("BatchGroups is %d, want 1 to %d", c.BatchGroups, queueGroupsMax)
	}
	if len(c.EngineSlots) == 0 {
		bad.add("EngineSlots is empty, want at least one engine")
	}
	for i, n := range c.EngineSlots {
		if n < 1 || n > concurrencyMax {
			bad.add("EngineSlots[%d] is %d, want 1 to %d", i, n, concurrencyMax)
		}
	}
	c.validateCells(bad)
	if c.Start == StartGang && c.Concurrency() < c.stride() {
		bad.add("%d slots cannot hold a group of %d under StartGang", c.Concurrency(), c.stride())
	}
	if c.MaxStaleness < 0 || c.SyncEvery < 0 || c.MaxAttempts < 0 || c.TrainAttempts < 0 || c.TrainSteps < 0 || c.MaxSpans < 0 || c.MaxUses < 0 {
		bad.add("MaxStaleness, SyncEvery, MaxAttempts, TrainAttempts, TrainSteps, MaxSpans and MaxUses must not be negative")
	}
}

func (c Config) validateCells(bad *refusals) {
	if c.ResumeRestart && c.EngineCells != nil && !c.StaysInCell {
		bad.add("ResumeRestart is set and StaysInCell is not, and there are cells: what the driver keeps of a rollout is known in its cell alone")
	}
	if c.EngineCells == nil {
		return
	}
	if len(c.EngineCells) != len(c.EngineSlots) {
		bad.add("EngineCells has %d engines, want the %d of EngineSlots", len(c.EngineCells), len(c.EngineSlots))
	}
	for i, cell := range c.EngineCells {
		if cell < 0 || cell > concurrencyMax {
			bad.add("EngineCells[%d] is %d, want 0 to %d", i, cell, concurrencyMax)
		}
	}
}

func (c Config) validateQueue(bad *refusals) {
	if c.QueueGroups < c.BatchGroups || c.QueueGroups > queueGroupsMax {
		bad.add("QueueGroups is %d, want BatchGroups (%d) to %d: a smaller queue never fills a batch", c.QueueGroups, c.BatchGroups, queueGroupsMax)
	}
	switch c.Policy {
	case PolicySynchronous:
		if c.ExtraGroups >= 0 && c.QueueGroups != c.BatchGroups+c.ExtraGroups {
			bad.add("QueueGroups is %d, want BatchGroups and ExtraGroups (%d) under PolicySynchronous", c.QueueGroups, c.BatchGroups+c.ExtraGroups)
		}
		if c.SyncEvery > 1 {
			bad.add("SyncEvery is %d, want 1 under PolicySynchronous: the next batch waits for the next served version", c.SyncEvery)
		}
	case PolicyBounded, PolicyThreshold:
		if most := c.LiveGroupsMax(); most > queueGroupsMax {
			bad.add("Eta, StalenessThreshold or SyncEvery admits %d groups, want at most %d", most, queueGroupsMax)
		} else if c.QueueGroups < most {
			bad.add("QueueGroups is %d, want at least the %d groups that may be live: a smaller queue would drop what the policy never drops", c.QueueGroups, most)
		}
	}
	if (c.Policy == PolicyMax || c.Policy == PolicyReplay && c.MaxStaleness > 0) && c.MaxStaleness >= 0 && c.MaxStaleness < Version(c.SyncEvery)-1 {
		bad.add("MaxStaleness is %d, want at least SyncEvery-1 (%d): until the next sync every group is staler than that, and the trainer starves", c.MaxStaleness, c.SyncEvery-1)
	}
}

func (c Config) validateAdmission(bad *refusals) {
	switch {
	case !(c.Eta >= 0 && c.Eta <= stalenessMax):
		bad.add("Eta is %g, want 0 to %d versions", c.Eta, stalenessMax)
	case c.Policy == PolicyBounded && c.Eta < float64(c.SyncEvery-1):
		bad.add("Eta is %g, want at least SyncEvery-1 (%d): between syncs no group could be opened, and the trainer would starve", c.Eta, c.SyncEvery-1)
	}
	if !(c.StalenessThreshold >= 0 && c.StalenessThreshold <= stalenessMax) {
		bad.add("StalenessThreshold is %g, want 0 to %d", c.StalenessThreshold, stalenessMax)
	}
	if c.PauseGroups != 0 && c.PauseGroups < c.BatchGroups {
		bad.add("PauseGroups is %d, want 0 or at least BatchGroups (%d): admission would pause before a batch is full", c.PauseGroups, c.BatchGroups)
	}
	if !(c.Hold >= 0 && c.Hold < 1) {
		bad.add("Hold is %g, want a share of the train period from 0 to below 1", c.Hold)
	}
	c.validateHoldCost(bad)
	if c.ExtraGroups < 0 || c.ExtraGroups > queueGroupsMax || c.ExtraGroups > 0 && c.Policy != PolicySynchronous {
		bad.add("ExtraGroups is %d under policy %d, want 0, or up to %d under PolicySynchronous: asynchronous engines are never short of groups", c.ExtraGroups, c.Policy, queueGroupsMax)
	}
}

func (c Config) validateReplay(bad *refusals) {
	if !(c.Gamma >= 0 && c.Gamma <= 1) {
		bad.add("Gamma is %g, want above 0 and up to 1", c.Gamma)
	}
	if c.Balance && (c.Policy != PolicyReplay || c.Prompts < 1) {
		bad.add("Balance needs PolicyReplay and a set of Prompts (%d): groups with prompts of their own are balanced already", c.Prompts)
	}
}

func (c Config) validateShaping(bad *refusals) {
	if c.FilterZeroAdvantage && c.GroupSize == 1 {
		bad.add("GroupSize is 1, want at least 2 with FilterZeroAdvantage: a single reward equals itself, and every group is filtered")
	}
	if c.FilterSolveRate && c.SolveLow > 0 && c.SolveHigh < 1 && c.GroupSize == 1 {
		bad.add("GroupSize is 1, want at least 2 with FilterSolveRate: a single rollout is solved or not, and the band [%g, %g] holds neither", c.SolveLow, c.SolveHigh)
	}
	if !(c.SolveLow >= 0 && c.SolveLow <= c.SolveHigh && c.SolveHigh <= 1) {
		bad.add("SolveLow is %g and SolveHigh %g, want a band within 0 and 1", c.SolveLow, c.SolveHigh)
	}
	if (c.FilterSolveRate || c.Levels > 0) && c.SolveHigh == 0 {
		bad.add("SolveHigh is 0, want a band of solve rates with FilterSolveRate or Levels")
	}
	if c.Levels < 0 || c.Levels > levelsMax || c.Prompts < 0 || c.Prompts > promptsMax {
		bad.add("Levels is %d and Prompts %d, want 0 to %d and 0 to %d", c.Levels, c.Prompts, levelsMax, promptsMax)
	}
	if !(c.Explore >= 0 && c.Explore <= 1) {
		bad.add("Explore is %g, want a share from 0 to 1", c.Explore)
	}
}

// stride is the most rollouts of one group that are started.
func (c Config) stride() int { return c.GroupSize + c.Redundancy }

// LiveGroupsMax returns the groups that PolicyBounded or PolicyThreshold admits in all. That is
// (Eta+1)*BatchGroups or (1+StalenessThreshold)*SyncEvery*BatchGroups rounded down, and 0 for
// policies that count none. Note that verl truncates the same product of binary fractions, so that
// 1.15 times 100 is 114 there and 115 here.
func (c Config) LiveGroupsMax() int {
	const rounding = 1e-9
	switch c.Policy {
	case PolicyBounded:
		return int(float64((c.Eta+1)*float64(c.BatchGroups)) + rounding) // the conversion keeps machines from fusing
	case PolicyThreshold:
		return int(float64((1+c.StalenessThreshold)*float64(max(c.SyncEvery, 1))*float64(c.BatchGroups)) + rounding)
	}
	return 0
}
