package schedule

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes of a Gantt in SVG units.
const (
	ganttWidth  = 960
	ganttLabel  = 150
	ganttLane   = 16
	ganttEngine = 34
	ganttGap    = 16
	ganttAxis   = 34
)

// SVG draws the schedules' last batches on one scale of time. The share of slots
// busy is an area, train steps and weight syncs are bars. The drawing takes its
// colours from the page's variables.
func SVG(c Comparison) string {
	rows := drawnRows(c)
	if len(rows) == 0 {
		return ""
	}
	longest := 0.0
	for _, r := range rows {
		longest = max(longest, float64(r.Gantt.Cells)*r.Gantt.CellS)
	}
	height := len(rows)*(ganttEngine+2*ganttLane+ganttGap) + ganttAxis
	scale := float64(ganttWidth-ganttLabel-10) / longest
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="What is busy over the last batches of every schedule" font-size="12" font-family="system-ui, sans-serif">`, ganttWidth, height)
	axis(&b, longest, scale, height)
	legend(&b, height)
	y := 4.0
	for _, r := range rows {
		fmt.Fprintf(&b, `<text x="0" y="%.0f" fill="var(--text)" font-weight="600">%s</text>`, y+14, html.EscapeString(string(r.Name)))
		fmt.Fprintf(&b, `<text x="0" y="%.0f" fill="var(--quiet)">%s s a batch</text>`, y+30, seconds(r.Parts.StepS))
		area(&b, r.Gantt, scale, y, ganttEngine)
		logProbs := r.Parts.LogProbS / max(r.Parts.LogProbS+r.Parts.TrainS, 1e-12)
		for _, s := range spans(r.Gantt.Trainer) {
			bar := func(from, to float64, colour, title string) {
				if to > from {
					rect(&b, ganttLabel+from*r.Gantt.CellS*scale, y+ganttEngine+3, (to-from)*r.Gantt.CellS*scale, colour, title)
				}
			}
			middle := s.from + logProbs*(s.to-s.from)
			bar(s.from, middle, "--series-3", "old log-probs")
			bar(middle, s.to, "--series-2", "update")
		}
		for _, s := range spans(r.Gantt.Sync) {
			rect(&b, ganttLabel+s.from*r.Gantt.CellS*scale, y+ganttEngine+ganttLane+3, (s.to-s.from)*r.Gantt.CellS*scale, "--series-4", "weight sync or hand-over")
		}
		y += ganttEngine + 2*ganttLane + ganttGap
	}
	b.WriteString(`</svg>`)
	return b.String()
}

// drawnRows are the schedules that ran.
func drawnRows(c Comparison) []Row {
	var rows []Row
	for _, r := range c.Rows {
		if r.Gantt.Cells > 0 && r.Gantt.CellS > 0 {
			rows = append(rows, r)
		}
	}
	return rows
}

// axis draws the scale of time below, and its lines.
func axis(b *strings.Builder, longest, scale float64, height int) {
	step := math.Pow(10, math.Floor(math.Log10(longest/4)))
	for _, m := range []float64{5, 2} {
		if longest/(step*m) >= 4 {
			step *= m
			break
		}
	}
	for t := 0.0; t <= longest; t += step {
		x := ganttLabel + t*scale
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="0" y2="%d" stroke="var(--grid)"/><text x="%.1f" y="%d" fill="var(--quiet)" text-anchor="middle">%s</text>`,
			x, x, height-ganttAxis, x, height-16, fmt.Sprintf("%g s", math.Round(t*1000)/1000))
	}
}

// legend says what the colours are, on the line of the axis' ends.
func legend(b *strings.Builder, height int) {
	x := 0
	for _, e := range []struct{ colour, name string }{{"--series-1", "slots"}, {"--series-3", "log-probs"}, {"--series-2", "update"}, {"--series-4", "sync"}} {
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="10" height="10" fill="var(%s)"/><text x="%d" y="%d" fill="var(--quiet)">%s</text>`, x, height-10, e.colour, x+14, height-1, e.name)
		x += 24 + 7*len(e.name)
	}
}

// area draws the share of slots busy.
func area(b *strings.Builder, g Gantt, scale, y, height float64) {
	width := g.CellS * scale
	fmt.Fprintf(b, `<path fill="var(--series-1)" fill-opacity="0.75" d="M%d %.1f`, ganttLabel, y+height)
	for i, share := range g.Engines {
		level := y + height*(1-min(share, 1))
		if share > 0 {
			level = min(level, y+height-1.5) // a few rollouts of thousands are to be seen
		}
		fmt.Fprintf(b, "L%.1f %.1fL%.1f %.1f", ganttLabel+float64(i)*width, level, ganttLabel+float64(i+1)*width, level)
	}
	fmt.Fprintf(b, `L%.1f %.1fZ"><title>share of slots busy</title></path>`, ganttLabel+float64(len(g.Engines))*width, y+height)
	fmt.Fprintf(b, `<line x1="%d" x2="%.1f" y1="%.1f" y2="%.1f" stroke="var(--line)"/>`, ganttLabel, ganttLabel+float64(len(g.Engines))*width, y+height, y+height)
}

// rect draws one bar.
func rect(b *strings.Builder, x, y, width float64, colour, title string) {
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="var(%s)"><title>%s</title></rect>`, x, y, max(width, 1), ganttLane-4, colour, title)
}

// span is a time without a break, in cells.
type span struct{ from, to float64 }

// spans are the times in which something ran; a cell that was busy for a part of its
// time begins or ends one.
func spans(share []float64) []span {
	var list []span
	open := -1.0
	for i, s := range share {
		at := float64(i)
		switch {
		case s <= 0.001:
			if open >= 0 {
				list = append(list, span{open, at})
			}
			open = -1
		case open < 0 && s < 0.999 && (i+1 >= len(share) || share[i+1] <= 0.001):
			list = append(list, span{at, at + s})
		case open < 0:
			open = at + 1 - s
		case s < 0.999:
			// It stopped within the cell, and may have begun again.
			if i+1 < len(share) && share[i+1] > 0.001 {
				list = append(list, span{open, at + s/2})
				open = at + 1 - s/2
				continue
			}
			list = append(list, span{open, at + s})
			open = -1
		}
	}
	if open >= 0 {
		list = append(list, span{open, float64(len(share))})
	}
	return list
}
