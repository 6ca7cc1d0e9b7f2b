package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// Asynchrony is what a run whose engines and trainer take turns would gain from asynchronous training on the same GPUs,
// divided between them. Times in seconds.
type Asynchrony struct {
	// StepS is a step now, and the sum of the others; RestS is what no part names.
	StepS     float64 `json:"step_s"`
	GenerateS float64 `json:"generate_s"`
	LogProbsS float64 `json:"log_probs_s"`
	TrainS    float64 `json:"train_s"`
	SyncS     float64 `json:"sync_s"`
	RestS     float64 `json:"rest_s"`
	// BusyShare is the mean share of the batch that still generates during GenerateS; 0 where it is not known.
	BusyShare float64 `json:"slots_busy_share,omitempty"`
	// StepLowS and StepHighS bound a step of asynchronous training.
	StepLowS  float64 `json:"step_low_s"`
	StepHighS float64 `json:"step_high_s"`
	// RolloutShareLow and RolloutShareHigh bound the share of the GPUs that generates.
	RolloutShareLow  float64 `json:"rollout_share_low"`
	RolloutShareHigh float64 `json:"rollout_share_high"`
	// StalenessMean is the mean staleness that it costs, by the closed form; 0 where it is not known.
	StalenessMean float64 `json:"staleness_mean,omitempty"`
	// Assumes are the conditions of the bounds, a sentence each.
	Assumes []string `json:"assumes"`
}

// asynchrony is what asynchronous training would make of a log whose engines and trainer take turns; nil for other runs, and
// where a part of the step is not known.
func (w logWindow) asynchrony(s foreign.Settings) *Asynchrony {
	if s.Policy != theory.PolicySynchronous {
		return nil
	}
	of := func(at func(*foreign.Step) foreign.Figure) float64 { return w.mean(at).or(0) }
	t := theory.Turns{StepS: of(periodS), GenerateS: of(func(s *foreign.Step) foreign.Figure { return s.GenerateS }),
		TrainS:    of(func(s *foreign.Step) foreign.Figure { return s.TrainS }),
		LogProbsS: of(func(s *foreign.Step) foreign.Figure { return s.LogProbsS }),
		SyncS:     of(func(s *foreign.Step) foreign.Figure { return s.SyncS }),
		BusyShare: of(func(s *foreign.Step) foreign.Figure { return s.SlotsBusy })}
	if t.Validate() != nil {
		return nil
	}
	apart := t.Apart()
	a := &Asynchrony{StepS: t.StepS, GenerateS: t.GenerateS, LogProbsS: t.LogProbsS, TrainS: t.TrainS, SyncS: t.SyncS, RestS: t.RestS(), BusyShare: t.BusyShare,
		StepLowS: apart.LowS, StepHighS: apart.HighS, RolloutShareLow: apart.RolloutLow, RolloutShareHigh: apart.RolloutHigh}
	a.Assumes = []string{
		fmt.Sprintf("%s s if generation and training need the GPU time that they need now, and the old log-probs are computed again: the weight sync alone is hidden.", report.Figure(a.StepHighS, 1)),
		fmt.Sprintf("%s s if the trainer is as fast on its share of the GPUs as on all, the engines' log-probs are taken, and full slots decode as fast as empty ones: the tail is gone.", report.Figure(a.StepLowS, 1)),
		"Both hold at the split at which neither side waits, in parts as small as a GPU, with the memory that each side needs.",
	}
	if b, size := s.BatchRollouts.Value, int(s.GroupSize.Value); t.BusyShare > 0 && s.BatchRollouts.Known() && size > 0 && b >= float64(size) {
		a.StalenessMean = stalenessApart(b, size, t.BusyShare)
	}
	if t.BusyShare == 0 {
		a.Assumes = append(a.Assumes, "The log does not say how much of the generation is tail, as response_length/mean and response_length/max do: none is counted, and the best may be better.")
	}
	if a.StalenessMean > 0 {
		a.Assumes = append(a.Assumes, "The staleness is that of a batch in flight, a queue of one batch that drops its oldest, balanced sides, and lognormal lengths whose longest of a batch is the logged one.")
	}
	return a
}

// stalenessApart is the mean staleness of balanced sides with a batch in flight and a queue of one; 0 where no closed
// form has it.
func stalenessApart(batch float64, size int, busy float64) float64 {
	const grades = 100
	lengths := func(tailness int) *workload.Lengths {
		l, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 10_000, Tailness: float64(tailness)}.Build()
		if err != nil {
			return nil
		}
		return l
	}
	at := 1 + sort.Search(grades-1, func(i int) bool {
		l := lengths(i + 1)
		return l != nil && l.MeanMax(int(batch)) >= l.Mean()/busy
	})
	l := lengths(at)
	if l == nil {
		return 0
	}
	p, err := theory.Predict(theory.Input{ConcurrencyRollouts: batch, BatchRollouts: batch, GroupSize: size, QueueFactor: 1, Utilization: 1,
		TailMultiplier: min(max(l.TailMultiplier(size), 1), float64(size)), Policy: theory.PolicyDrop}.WithDefaults())
	if err != nil || !p.Covered {
		return 0
	}
	return p.Corrected.Mean.Or(0)
}

// turn is a named part of a step, in seconds.
type turn struct {
	name string
	s    float64
}

// list are the step's parts, the longest first, those that there are.
func (a *Asynchrony) list() []turn {
	list := slices.DeleteFunc([]turn{{"generation", a.GenerateS}, {"training", a.TrainS}, {"old log-probs", a.LogProbsS}, {"weight sync", a.SyncS}, {"other", a.RestS}},
		func(t turn) bool { return t.s <= 0 })
	slices.SortStableFunc(list, func(x, y turn) int { return cmp.Compare(y.s, x.s) })
	return list
}

// parts are the step's parts in words.
func (a *Asynchrony) parts() string {
	var list []string
	for _, p := range a.list() {
		list = append(list, fmt.Sprintf("%s %s", p.name, report.Short(p.s)))
	}
	return strings.Join(list, ", ")
}

// advice is what to do about turns.
func (a *Asynchrony) advice() report.Advice {
	tail := "; more with a tail, which takes response_length/mean and /max to tell"
	if a.BusyShare > 0 {
		tail = fmt.Sprintf("; %s of the slots' time in generation is tail", report.Share(1-a.BusyShare))
	}
	price := "rollouts are one version old and more"
	if a.StalenessMean > 0 {
		price = fmt.Sprintf("a mean staleness of about %s versions with a batch in flight", report.Figure(a.StalenessMean, 1))
	}
	return report.Advice{Do: fmt.Sprintf("Train asynchronously on the same GPUs, %s to %s of them to roll out", report.Share(a.RolloutShareLow), report.Share(a.RolloutShareHigh)),
		Buys: fmt.Sprintf("a step of %s to %s s instead of %s s, %s to %s times as fast%s", report.Short(a.StepLowS), report.Short(a.StepHighS), report.Short(a.StepS),
			report.Figure(a.StepS/a.StepHighS, 1), report.Figure(a.StepS/a.StepLowS, 1), tail),
		Price: price}
}

// asynchronyLines are what it would buy and the conditions of that; none where it is not known.
func asynchronyLines(a *Asynchrony) []string {
	if a == nil {
		return nil
	}
	advice := a.advice()
	return append([]string{advice.Do + ": " + advice.Buys + "; the price: " + advice.Price + "."}, append(a.Assumes, boundsNote)...)
}

// table is the step in its parts.
func (a *Asynchrony) table() report.Table {
	t := report.Table{Title: "a step in turns", Header: []string{"", "s", "share"}}
	for _, p := range a.list() {
		t.Rows = append(t.Rows, []string{p.name, report.Figure(p.s, 2), report.Share(p.s / a.StepS)})
	}
	return t
}
