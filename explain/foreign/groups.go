package foreign

import (
	"cmp"
	"slices"
)

// groupsOf adds to the steps what only groups of single rollouts say: the time of a group, and its tail.
func groupsOf(log *Log) {
	found := map[string]bool{}
	for step, groups := range trainedGroups(log) {
		i, there := slices.BinarySearchFunc(log.Series, step, func(s Step, want int64) int { return cmp.Compare(s.Step, want) })
		if !there {
			continue
		}
		for _, f := range groupFigures(groups) {
			if at := f.notion.At(&log.Series[i]); f.known && !at.Known() {
				*at = Figure{Value: f.value, Origin: Inferred, From: f.formula}
				found[f.notion.Name+" = "+f.formula] = true
			}
		}
	}
	for formula := range found {
		log.Inferred = append(log.Inferred, formula)
	}
}

// trainedGroups sorts the rollouts by the step that trained them and by group.
func trainedGroups(log *Log) map[int64]map[string][]Rollout {
	byStep := map[int64]map[string][]Rollout{}
	for _, r := range log.Rollouts {
		if !r.Trained.Known() || r.Group == "" {
			continue
		}
		step := int64(r.Trained.Value) + 1
		if byStep[step] == nil {
			byStep[step] = map[string][]Rollout{}
		}
		byStep[step][r.Group] = append(byStep[step][r.Group], r)
	}
	return byStep
}

// groupFigure is a figure made of a step's groups.
type groupFigure struct {
	notion  Notion
	value   float64
	known   bool
	formula string
}

// groupFigures are what the groups of one step say: nothing of what a rollout of them lacks.
func groupFigures(groups map[string][]Rollout) []groupFigure {
	longest, all, count := 0.0, 0.0, 0
	timed := true
	for _, rollouts := range groups {
		most := 0.0
		for _, r := range rollouts {
			timed = timed && r.StartS.Known() && r.EndS.Known()
			took := r.EndS.Value - r.StartS.Value
			most, all = max(most, took), all+took
		}
		count += len(rollouts)
		longest += most
	}
	n := float64(len(groups))
	return []groupFigure{
		{GroupMean, longest / n, timed, "mean over groups of their longest rollout"},
		{Tail, longest / n / (all / float64(count)), timed && all > 0, "mean of the longest rollout of a group ÷ mean of all"},
	}
}
