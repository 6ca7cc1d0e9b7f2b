package foreign

import (
	"cmp"
	"slices"
)

// groupTimes adds the tail multiplier and the time of a group to the steps whose rollouts are in the log.
func groupTimes(log *Log) {
	byStep := map[int64]map[string][]float64{}
	for _, r := range log.Rollouts {
		if !r.Trained.Known() || !r.StartS.Known() || !r.EndS.Known() || r.Group == "" {
			continue
		}
		step := int64(r.Trained.Value) + 1
		if byStep[step] == nil {
			byStep[step] = map[string][]float64{}
		}
		byStep[step][r.Group] = append(byStep[step][r.Group], r.EndS.Value-r.StartS.Value)
	}
	for step, groups := range byStep {
		i, there := slices.BinarySearchFunc(log.Series, step, func(s Step, want int64) int { return cmp.Compare(s.Step, want) })
		if !there {
			continue
		}
		at := &log.Series[i]
		longest, mean := tailOf(groups)
		if !at.GroupMeanS.Known() {
			at.GroupMeanS = Figure{Value: longest, Origin: Inferred, From: "mean over groups of their longest rollout"}
		}
		if !at.TailMultiplier.Known() && mean > 0 {
			at.TailMultiplier = Figure{Value: longest / mean, Origin: Inferred, From: groupTail}
		}
	}
	if len(byStep) > 0 {
		log.Inferred = append(log.Inferred, Tail.Name+" = "+groupTail)
	}
}

const groupTail = "mean of the longest rollout of a group ÷ mean of all"

// tailOf returns the mean of the groups' longest times, and the mean of all times.
func tailOf(groups map[string][]float64) (longest, mean float64) {
	sum, count := 0.0, 0
	for _, times := range groups {
		longest += slices.Max(times)
		for _, t := range times {
			sum += t
		}
		count += len(times)
	}
	return longest / float64(len(groups)), sum / float64(count)
}
