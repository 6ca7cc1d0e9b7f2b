package bias

import "math"

// Report is what a run's choice of groups did to what it trained on.
type Report struct {
	// Groups and Rollouts were opened in the window and have ended; TrainedGroups were trained at
	// least once. Means and intervals leave the last steps out, from the first of which a group
	// still lives; histograms, categories and tests of them do not.
	Groups        int64 `json:"groups"`
	TrainedGroups int64 `json:"trained_groups"`
	Rollouts      int64 `json:"rollouts"`
	// CensoredShare is the share of started rollouts whose length never became known: cancelled,
	// pruned or failed where lengths are not known beforehand. A bias among them is not seen.
	CensoredShare float64 `json:"censored_share"`
	// Batches is how many batches of consecutive train steps the intervals rest on, 0 for no intervals.
	Batches int `json:"batches"`
	// Length of responses in tokens, Environment time in seconds; nil where none is known.
	Length      *Property `json:"length"`
	Environment *Property `json:"environment"`
	// Prompt, Level and SolveRate are nil where groups have none. The solve rate is of groups whose
	// rollouts were all scored.
	Prompt    *Categories `json:"prompt"`
	Level     *Categories `json:"level"`
	SolveRate *Categories `json:"solve_rate"`
	// Order is length against the order in which groups enter a batch; nil for batches of one group.
	Order *Order `json:"order"`
	// Conclusions are those of all parts, one sentence each.
	Conclusions []string `json:"conclusions"`
}

// Property compares the distribution of one property of rollouts.
type Property struct {
	// Name of the property, Unit of its figures.
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Started and Trained are rollouts; a trained one counts as often as it was trained.
	Started int64 `json:"started"`
	Trained int64 `json:"trained"`
	// StartedMean and TrainedMean, and the second over the first with its 95 % interval: a jackknife over
	// batches of train steps, since steps are correlated. The interval is [0, 0] where there are too few.
	StartedMean float64    `json:"started_mean"`
	TrainedMean float64    `json:"trained_mean"`
	Ratio       float64    `json:"ratio"`
	Ratio95     [2]float64 `json:"ratio_95"`
	// Distance is Kolmogorov's and Smirnov's: the largest difference between the cumulative distributions
	// of the trained and the untrained. P is its probability where groups are chosen regardless of this
	// property; 1 where there is no test. Both samples count as that many independent
	// values as siblings, who are alike, are worth: Effect rollouts are worth one.
	Distance float64 `json:"distance"`
	P        float64 `json:"p"`
	Effect   float64 `json:"design_effect"`
	// Histogram of started and trained, for a picture.
	Histogram []Bin `json:"histogram"`
	// Found says that a bias was found at 95 % confidence; Verdict says what, in words.
	Found      bool   `json:"found"`
	Conclusion string `json:"conclusion"`
}

// Bin is one of a histogram: values from Low up to the next bin's Low.
type Bin struct {
	Low float64 `json:"low"`
	// Started and Trained are shares of each.
	Started float64 `json:"started"`
	Trained float64 `json:"trained"`
}

// Categories compares how large a share of its groups each category has trained.
type Categories struct {
	Name string `json:"name"`
	// Cells are the categories in order. Of prompts, which may be many, they are at most 10. Those
	// come first that are trained least often for their starts, the most significant before the
	// others.
	Cells []Cell `json:"cells"`
	// Categories is how many there are with started groups, NeverTrained how many of them have none trained.
	Categories   int `json:"categories"`
	NeverTrained int `json:"never_trained"`
	// ChiSquare with Freedom degrees tests that the same share of every category's groups is trained. P is its
	// probability then, 1 where there is no test. PooledCells with few groups were tested as one.
	ChiSquare   float64 `json:"chi_square"`
	Freedom     int     `json:"degrees_of_freedom"`
	P           float64 `json:"p"`
	PooledCells int     `json:"pooled_cells"`
	// Ratio is the trained over the started mean, where the category is a number; else 0.
	Ratio float64 `json:"ratio,omitempty"`
	// Found says that a bias was found at 95 % confidence; Verdict says what, in words.
	Found      bool   `json:"found"`
	Conclusion string `json:"conclusion"`
}

// Cell is one category: groups started and, of them, trained.
type Cell struct {
	Name    string `json:"name"`
	Started int64  `json:"started_groups"`
	Trained int64  `json:"trained_groups"`
	// TrainedShare is the second over the first.
	TrainedShare float64 `json:"trained_share"`
}

// Order is length against the order of groups within a batch, which is that of their selection. A
// trainer that splits its batch into several updates sees it.
type Order struct {
	// Groups is how many were leased.
	Groups int64 `json:"groups"`
	// Slope is the growth of the mean length from the first to the last of a batch, as a share of the mean. It is
	// fitted by least squares. Its 95 % interval is over batches of steps; [0, 0] where there are too few.
	Slope   float64    `json:"slope"`
	Slope95 [2]float64 `json:"slope_95"`
	// Correlation is that of a group's mean length and its position.
	Correlation float64 `json:"correlation"`
	// MeanTokens by tenth of the batch, by group of a smaller one; the first selected first.
	MeanTokens []float64 `json:"mean_tokens"`
	// Found says that the slope's interval leaves out 0; Verdict says it in words.
	Found      bool   `json:"found"`
	Conclusion string `json:"conclusion"`
}

// Report compares what has ended so far.
func (o *Observer) Report() Report {
	parts := batches(o.series.closed())
	r := Report{Groups: o.counts.groups, TrainedGroups: o.trainedGroups, Rollouts: o.rollouts}
	if o.rollouts > 0 {
		r.CensoredShare = float64(o.censored) / float64(o.rollouts)
	}
	if len(parts) >= batchesFewest {
		r.Batches = len(parts)
	}
	r.Length = property("length", "tokens", 1, parts, func(b *block) *sums { return &b.length }, &o.length, o.lengthSpread.effect())
	r.Environment = property("environment time", "seconds", 1e-6, parts, func(b *block) *sums { return &b.environment }, &o.environment, o.environmentSpread.effect())
	r.Prompt = o.promptCategories()
	r.Level = o.levelCategories()
	r.SolveRate = o.solveCategories()
	r.Order = o.orderOf(parts)
	r.Conclusions = r.verdicts()
	return r
}

// property compares one property; nil if it is not known of any rollout, or 0 of all.
func property(name, unit string, scale float64, parts []block, of func(*block) *sums, h *[3]histogram, effect float64) *Property {
	var all sums
	for i := range parts {
		all.scale(of(&parts[i]), 1)
	}
	if all.started == 0 || all.startedX == 0 {
		return nil
	}
	p := &Property{Name: name, Unit: unit, Started: all.started, Trained: all.trained, StartedMean: scale * all.startedX / float64(all.started), P: 1, Effect: effect}
	if all.trained > 0 {
		p.TrainedMean = scale * all.trainedX / float64(all.trained)
		p.Ratio = all.ratio()
		if log, half := jackknife(parts, func(b *block) float64 { return math.Log(of(b).ratio()) }); !math.IsNaN(half) {
			p.Ratio95 = [2]float64{math.Exp(log - half), math.Exp(log + half)}
		}
	}
	p.Distance = distance(&h[trained], &h[untrained])
	if nt, nu := h[trained].total(), h[untrained].total(); nt > 0 && nu > 0 {
		// A group that is trained again is no new value.
		once := float64(h[started].total() - nu)
		p.P = kolmogorov(p.Distance, math.Min(float64(nt), once)/effect, float64(nu)/effect)
	}
	p.Histogram = binned(h, scale)
	p.judge()
	return p
}

// drawnBins is how many bins of a histogram are reported at most.
const drawnBins = 48

// binned is the histogram of started and trained from the first bin with something in it to
// the last, neighbours merged until few enough are left for a picture.
func binned(h *[3]histogram, scale float64) []Bin {
	first, last := bins, 0
	for i := range bins {
		if h[started][i]+h[trained][i] > 0 {
			first, last = min(first, i), i
		}
	}
	merge := 1
	for last/merge-first/merge >= drawnBins {
		merge *= 2
	}
	ns, nt := math.Max(float64(h[started].total()), 1), math.Max(float64(h[trained].total()), 1)
	var out []Bin
	for i := first / merge * merge; i <= last; i += merge {
		bin := Bin{Low: scale * float64(binLow(i))}
		for k := i; k < min(i+merge, bins); k++ {
			bin.Started += float64(h[started][k]) / ns
			bin.Trained += float64(h[trained][k]) / nt
		}
		out = append(out, bin)
	}
	return out
}
