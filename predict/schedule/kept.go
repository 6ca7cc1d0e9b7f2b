package schedule

import (
	"slices"

	"github.com/headway-rl/headway/loop/workload"
)

// Kept keeps closed forms and barriers for Inputs that differ in little. Inputs that share one have the
// figures that they would have without. It grows with every Input that is new, and is for one goroutine at a time.
type Kept struct {
	figures  []keptFigure
	longests map[keptLengths]workload.Distribution
}

// question is all that a closed form turns on, beside the curve of decode steps. A barrier has no schedule, and the
// longest of a batch no engines.
type question struct {
	lengths                                   *workload.Lengths
	environment                               *workload.Times
	group, groups, gpusPerEngine, slots, gpus int
	whole                                     bool
	fixedS, weightsS, slotReadS, slotComputeS float64
	name                                      Name
	pieces                                    int
	threshold, trainS, syncS, loadS           float64
}

type keptFigure struct {
	of    question
	curve []Point
	s     float64
}

type keptLengths struct {
	lengths *workload.Lengths
	group   int
}

// generates is what generation on that many GPUs turns on.
func (in Input) generates(gpus int) question {
	d := in.Decode
	return question{lengths: in.Lengths, environment: in.Environment, group: in.GroupSize, groups: in.BatchGroups, gpusPerEngine: in.GPUsPerEngine,
		slots: in.SlotsPerEngine, gpus: gpus, whole: in.WholeGroups, fixedS: d.FixedS, weightsS: d.WeightsS, slotReadS: d.SlotReadS, slotComputeS: d.SlotComputeS}
}

// figure is the answer to a question, worked out once; with no Kept, each time.
func (k *Kept) figure(of question, curve []Point, work func() float64) float64 {
	if k == nil {
		return work()
	}
	for _, f := range k.figures {
		if f.of == of && slices.Equal(f.curve, curve) {
			return f.s
		}
	}
	s := work()
	k.figures = append(k.figures, keptFigure{of, curve, s})
	return s
}

// longest is the length of the longest of a group.
func (k *Kept) longest(l *workload.Lengths, group int) workload.Distribution {
	if k == nil {
		return l.MaxDistribution(group)
	}
	key := keptLengths{l, group}
	d, ok := k.longests[key]
	if !ok {
		if d = l.MaxDistribution(group); k.longests == nil {
			k.longests = map[keptLengths]workload.Distribution{}
		}
		k.longests[key] = d
	}
	return d
}
