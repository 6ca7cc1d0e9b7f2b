package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/report"
)

// verlUnexplained says which rows timing alone cannot explain, and by what it shows.
func verlUnexplained(rows map[string][]verlRow, runs [][]verlRun) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	by := map[string]map[string]verlRow{}
	for family, list := range rows {
		by[family] = map[string]verlRow{}
		for _, r := range list {
			by[family][fmt.Sprintf("%s %g %d", r.mode, r.threshold, r.require)] = r
		}
	}
	seven := by["7b-128"]
	mean := func(r verlRow) float64 {
		for _, seeds := range runs {
			if seeds[0].row == r {
				return over(seeds, func(v verlRun) float64 { return v.stepS }).Mean
			}
		}
		return math.NaN()
	}
	step := func(r verlRow) string { return report.Figure(mean(r), 1) }
	speedup := func(base, r verlRow) string { return report.Figure(base.stepS/mean(r), 2) }
	base, streamed, partial := rows["7b-128"][0], seven["stream_off_policy 0 4"], seven["async_partial 0.5 4"]
	one, four := seven["require_batches 0.5 1"], seven["require_batches 0.5 4"]
	add("The runs drifted, which no setting of a schedule explains: from the first hundred steps to the last printed the seconds a step grew %s times under colocated, %s under streamed and %s under partial rollouts on 128 GPUs (published hours), which the source puts down to response lengths; the colocated run of 64 GPUs did not drift (%s). A mean over such a run is of no one length distribution.",
		report.Figure(base.growth(), 2), report.Figure(streamed.growth(), 2), report.Figure(partial.growth(), 2), report.Figure(rows["7b-64"][0].growth(), 2))
	add("The same settings are printed twice, partial rollouts at θ 0.5 with require_batches 4, with %s s a step over 400 steps and %s over 300: %s apart. Predictions of a mean cannot be better than that.",
		report.Figure(partial.stepS, 1), report.Figure(four.stepS, 1), report.Share(partial.stepS/four.stepS-1))
	add("require_batches 1 is not a matter of timing: its update takes %s s against %s with require_batches 4, of the same number of prompts on the same GPUs, and its waits are no longer; its first hundred steps are as fast (%s against %s s), its third takes %s against %s. The source says that responses grew longer because of the order in which samples arrive. In simulation, where lengths do not react, they take %s and %s s.",
		report.Figure(one.updateS, 1), report.Figure(four.updateS, 1), one.hundreds()[0].Format(0), four.hundreds()[0].Format(0), one.hundreds()[2].Format(0), four.hundreds()[2].Format(0), step(one), step(four))
	if small := rows["7b-32"]; len(small) > 1 {
		slow, fast := small[0].hundreds(), small[1].hundreds()
		add("16:16 is predicted too slow because its calibration row drifted and it did not: the colocated run of 32 GPUs took %s s a step in its first hundred and %s in its last, the asynchronous one %s and %s. While neither had drifted the published speed-up is %s, over the whole run %s; ours is %s.",
			slow[0].Format(0), slow[3].Format(0), fast[0].Format(0), fast[3].Format(0),
			report.Figure(slow[0].Or(math.NaN())/fast[0].Or(math.NaN()), 2), report.Figure(small[0].stepS/small[1].stepS, 2), speedup(small[0], small[1]))
	}
	big := rows["30b-128"]
	if len(big) > 1 {
		ref := big[1].refS.Or(math.NaN()) * float64(big[1].train) / (big[0].refS.Or(math.NaN()) * float64(big[0].train))
		update := big[1].updateS * float64(big[1].train) / (big[0].updateS * float64(big[0].train))
		add("30B-A3B at 96:32: the reference pass, the same work in both modes, took %s of the colocated run's GPU seconds, and the update %s: the asynchronous run trained fewer tokens a step, or 32 GPUs are that much better used than 128. Neither follows from the schedule.", report.Figure(ref, 2), report.Figure(update, 2))
	}
	least, most, n := math.Inf(1), 0.0, 0
	ours := 0.0
	for _, seeds := range runs {
		if r := seeds[0].row; r.partial && r.threshold >= 0.3 {
			least, most, n = min(least, r.genS), max(most, r.genS), n+1
			ours = max(ours, over(seeds, func(v verlRun) float64 { return v.waitS }).Mean)
		}
	}
	add("The waits printed for partial rollouts at θ of 0.3 and more, %s to %s s in %d rows, are alike at 16 and at 64 train GPUs, also at 16:16, where an update takes %s s. In simulation the trainer waits at most %s s for rollouts there. The timer also holds the fetching and assembling of each batch by one process, which no figure of the colocated run tells: it may be why most partial rows are predicted too fast.",
		report.Figure(least, 0), report.Figure(most, 0), n, report.Figure(rows["7b-32"][1].updateS, 0), report.Figure(ours, 0))
	low, high := math.Inf(1), 0.0
	for _, family := range []string{"7b-128", "7b-64", "7b-32"} {
		for _, r := range rows[family][1:] {
			if r.mode != "require_batches" {
				share := r.updateS * float64(r.train) / (rows[family][0].updateS * float64(rows[family][0].train))
				low, high = min(low, share), max(high, share)
			}
		}
	}
	add("Why the update does not double on half the GPUs (%s s on 128, %s to %s on 64): the fixed part of a pass goes with the offloading, and fewer ranks with more rollouts each share an optimizer step more evenly. The published updates of the 7B math runs take %s to %s of the colocated GPU seconds, require_batches left out.",
		report.Figure(base.updateS, 1), report.Figure(streamed.updateS, 1), report.Figure(partial.updateS, 1), report.Figure(low, 2), report.Figure(high, 2))
	return out
}

// verlOneRow predicts every 7B row, the other colocated ones included, from the one
// colocated row of 128 GPUs.
func (o Options) verlOneRow(ctx context.Context, rows map[string][]verlRow) (Grid, error) {
	g := Grid{Title: "All 7B rows from the one colocated row of 128 GPUs: seconds a step", Header: []string{"row", "published", "predicted", "off by"}}
	by, err := calibrate(rows["7b-128"][0], verlCentral)
	if err != nil {
		return g, err
	}
	var jobs []verlJob
	for _, name := range []string{"7b-64", "7b-32"} {
		for _, r := range rows[name] {
			jobs = append(jobs, verlJob{by, r})
		}
	}
	runs, err := o.simulateVerl(ctx, "verl: one row for all", jobs)
	if err != nil {
		return g, err
	}
	for _, seeds := range runs {
		i := over(seeds, func(v verlRun) float64 { return v.stepS })
		g.Rows = append(g.Rows, []string{seeds[0].row.name(), report.Figure(seeds[0].row.stepS, 1), printInterval(i, 1), offBy(verlResidual(seeds))})
	}
	return g, nil
}

// verlScan varies what had to be assumed.
func (o Options) verlScan(ctx context.Context, rows map[string][]verlRow) (Grid, error) {
	g := Grid{Title: "128 GPUs under other assumptions: seconds a step, and how far from the published one", Header: []string{"assumption", "mean length"}}
	varied := []struct {
		name   string
		change func(*verlAssumptions)
	}{
		{"as above", func(*verlAssumptions) {}},
		{"MFU 0.25", func(a *verlAssumptions) { a.mfu = 0.25 }},
		{"MFU 0.45", func(a *verlAssumptions) { a.mfu = 0.45 }},
		{"tailness 60", func(a *verlAssumptions) { a.tailness = 60 }},
		{"tailness 90", func(a *verlAssumptions) { a.tailness = 90 }},
		{"optimizer steps evenly shared", func(a *verlAssumptions) { a.balanced = true }},
		{"the fixed part stays", func(a *verlAssumptions) { a.offloadStays = true }},
		{"time beyond the timers goes", func(a *verlAssumptions) { a.restGone = true }},
		{"sync of 5 s", func(a *verlAssumptions) { a.syncS = 5 }},
	}
	var target []verlRow
	for _, r := range rows["7b-128"][1:] {
		if r.mode != "require_batches" {
			target = append(target, r)
			g.Header = append(g.Header, fmt.Sprintf("%s, published %.0f", verlShort(r), r.stepS))
		}
	}
	var jobs []verlJob
	var filled []int // rows of the grid that jobs fill
	for _, v := range varied {
		assumed := verlCentral
		v.change(&assumed)
		by, err := calibrate(rows["7b-128"][0], assumed)
		if err != nil {
			g.Rows = append(g.Rows, []string{v.name, "not possible: " + err.Error()})
			continue
		}
		filled = append(filled, len(g.Rows))
		g.Rows = append(g.Rows, []string{v.name, report.Figure(by.lengths.Mean(), 0)})
		for _, r := range target {
			jobs = append(jobs, verlJob{by, r})
		}
	}
	runs, err := o.simulateVerl(ctx, "verl: assumptions", jobs)
	if err != nil {
		return g, err
	}
	for n, seeds := range runs {
		row := &g.Rows[filled[n/len(target)]]
		mean := over(seeds, func(v verlRun) float64 { return v.stepS }).Mean
		*row = append(*row, fmt.Sprintf("%s (%s)", report.Figure(mean, 1), offBy(verlResidual(seeds))))
	}
	return g, nil
}

// verlShort names a mode.
func verlShort(r verlRow) string {
	if r.mode == "stream_off_policy" {
		return "streamed"
	}
	return fmt.Sprintf("partial θ %g", r.threshold)
}
