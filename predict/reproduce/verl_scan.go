package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// verlOneRow predicts every 7B row, the other colocated ones included, from the one
// colocated row of 128 GPUs.
func (o Options) verlOneRow(ctx context.Context, rows map[string][]verlRow) (Grid, error) {
	g := Grid{Title: "All 7B rows from the one colocated row of 128 GPUs: seconds a step", Header: []string{"row", "published", "predicted", "off by"}}
	by, err := fit(rows["7b-128"][0], verlCentral)
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

// verlScanned is what the modes of 128 GPUs come to under other assumptions.
type verlScanned struct {
	modes []verlRow
	lines []verlScanLine
}

// verlScanLine is one set of assumptions.
type verlScanLine struct {
	name    string
	assumes verlAssumptions
	// impossible says why the colocated row cannot be had under them, "" if it can.
	impossible string
	meanTokens float64
	// stepS and off are each mode's step and its residual.
	stepS, off []float64
}

// verlVaried are the assumptions that are varied, one at a time and the ones that
// bear on the trainer's time apart together.
func verlVaried() []verlScanLine {
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
		{"evenly shared, and the fixed part stays", func(a *verlAssumptions) { a.balanced, a.offloadStays = true, true }},
		{"evenly shared, the fixed part stays, time beyond the timers goes", func(a *verlAssumptions) { a.balanced, a.offloadStays, a.restGone = true, true, true }},
		{"MFU 0.25, time beyond the timers goes", func(a *verlAssumptions) { a.mfu, a.restGone = 0.25, true }},
		{"MFU 0.45, evenly shared", func(a *verlAssumptions) { a.mfu, a.balanced = 0.45, true }},
		{"MFU 0.45, the fixed part stays", func(a *verlAssumptions) { a.mfu, a.offloadStays = 0.45, true }},
	}
	var lines []verlScanLine
	for _, v := range varied {
		line := verlScanLine{name: v.name, assumes: verlCentral}
		v.change(&line.assumes)
		lines = append(lines, line)
	}
	return lines
}

// verlScan varies what had to be assumed.
func (o Options) verlScan(ctx context.Context, rows map[string][]verlRow) (verlScanned, error) {
	s := verlScanned{lines: verlVaried()}
	for _, r := range rows["7b-128"][1:] {
		if r.mode != "require_batches" {
			s.modes = append(s.modes, r)
		}
	}
	var jobs []verlJob
	var filled []int // lines that jobs fill
	for i := range s.lines {
		line := &s.lines[i]
		by, err := fit(rows["7b-128"][0], line.assumes)
		if err != nil {
			line.impossible = err.Error()
			continue
		}
		line.meanTokens = by.lengths.Mean()
		filled = append(filled, i)
		for _, r := range s.modes {
			jobs = append(jobs, verlJob{by, r})
		}
	}
	runs, err := o.simulateVerl(ctx, "verl: assumptions", jobs)
	if err != nil {
		return s, err
	}
	for n, seeds := range runs {
		line := &s.lines[filled[n/len(s.modes)]]
		line.stepS = append(line.stepS, over(seeds, func(v verlRun) float64 { return v.stepS }).Mean)
		line.off = append(line.off, verlResidual(seeds))
	}
	return s, nil
}

// grid is the scan as a table.
func (s verlScanned) grid() Grid {
	g := Grid{Title: "128 GPUs under other assumptions: seconds a step, and how far from the published one", Header: []string{"assumption", "mean length"}}
	for _, r := range s.modes {
		g.Header = append(g.Header, fmt.Sprintf("%s, published %.0f", verlShort(r), r.stepS))
	}
	for _, line := range s.lines {
		if line.impossible != "" {
			g.Rows = append(g.Rows, []string{line.name, "not possible: " + line.impossible})
			continue
		}
		row := []string{line.name, report.Figure(line.meanTokens, 0)}
		for i := range line.off {
			row = append(row, fmt.Sprintf("%s (%s)", report.Figure(line.stepS[i], 1), offBy(line.off[i])))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// misses reports whether a mode is further off than the tolerance, as it is printed.
func (l verlScanLine) misses() bool {
	return slices.ContainsFunc(l.off, func(e float64) bool { return math.Round(100*math.Abs(e)) >= 100*verlTolerance })
}

// findings say in how many lines the tolerance is kept, and what that rests on.
func (s verlScanned) findings() []string {
	var failing []string
	possible := 0
	residuals := func(l verlScanLine) string {
		var modes []string
		for i, e := range l.off {
			modes = append(modes, verlShort(s.modes[i])+" "+offBy(e))
		}
		return fmt.Sprintf("%s: %s", l.name, strings.Join(modes, ", "))
	}
	var fixed []string
	rests := false // on them that the tolerance is kept
	for _, l := range s.lines {
		if l.impossible != "" {
			continue
		}
		possible++
		if l.misses() {
			failing = append(failing, l.name)
		}
		if a := l.assumes; (a.balanced || a.offloadStays) && a.mfu == verlCentral.mfu && !a.restGone {
			fixed, rests = append(fixed, residuals(l)), rests || l.misses()
		}
	}
	out := []string{fmt.Sprintf("Of the %[2]d lines of the table of assumptions, the one above included, every mode is within that in %[1]d; in %[3]d at least one mode is %[4]s or more off (%[5]s).",
		possible-len(failing), possible, len(failing), report.Share(verlTolerance), listed(failing))}
	if len(fixed) > 0 {
		how := "It does not rest on the two assumptions"
		if rests {
			how = "It rests on two assumptions"
		}
		out = append(out, fmt.Sprintf("%s on which no figure of the calibration row bears: that the fixed part of a pass goes where GPUs are not shared, and that optimizer steps are uneven, and less so on fewer ranks. With one of them left out, or both: %s.", how, strings.Join(fixed, "; ")))
	}
	return out
}

// verlShort names a mode.
func verlShort(r verlRow) string {
	if r.mode == "stream_off_policy" {
		return "streamed"
	}
	return fmt.Sprintf("partial θ %g", r.threshold)
}
