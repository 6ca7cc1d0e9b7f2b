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

// SVG draws the schedules' last batches on one scale of time: the share of slots
// busy as an area, train steps and weight syncs as bars. The drawing takes its
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
	y := 4.0
	for _, r := range rows {
		fmt.Fprintf(&b, `<text x="0" y="%.0f" fill="var(--text)" font-weight="600">%s</text>`, y+14, html.EscapeString(string(r.Name)))
		fmt.Fprintf(&b, `<text x="0" y="%.0f" fill="var(--quiet)">%s s a batch</text>`, y+30, seconds(r.Parts.StepS))
		area(&b, r.Gantt, scale, y, ganttEngine)
		bars(&b, r.Gantt.Trainer, r.Gantt.CellS*scale, y+ganttEngine+3, "--series-2", "train step")
		bars(&b, r.Gantt.Sync, r.Gantt.CellS*scale, y+ganttEngine+ganttLane+3, "--series-4", "sync")
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
			x, x, height-ganttAxis, x, height-16, strings.TrimSuffix(fmt.Sprintf("%g s", math.Round(t*1000)/1000), ""))
	}
}

// area draws the share of slots busy.
func area(b *strings.Builder, g Gantt, scale, y, height float64) {
	width := g.CellS * scale
	fmt.Fprintf(b, `<path fill="var(--series-1)" fill-opacity="0.75" d="M%d %.1f`, ganttLabel, y+height)
	for i, share := range g.Engines {
		level := y + height*(1-min(share, 1))
		fmt.Fprintf(b, "L%.1f %.1fL%.1f %.1f", ganttLabel+float64(i)*width, level, ganttLabel+float64(i+1)*width, level)
	}
	fmt.Fprintf(b, `L%.1f %.1fZ"><title>share of slots busy</title></path>`, ganttLabel+float64(len(g.Engines))*width, y+height)
	fmt.Fprintf(b, `<line x1="%d" x2="%.1f" y1="%.1f" y2="%.1f" stroke="var(--line)"/>`, ganttLabel, ganttLabel+float64(len(g.Engines))*width, y+height, y+height)
}

// bars draws spans of busy cells, a cell that was busy for a part of its time as
// that part.
func bars(b *strings.Builder, share []float64, width, y float64, colour, title string) {
	start, open := 0.0, false
	flush := func(end float64) {
		if open && end-start > 0 {
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="2" fill="var(%s)"><title>%s</title></rect>`,
				ganttLabel+start*width, y, max((end-start)*width, 1), ganttLane-4, colour, title)
		}
		open = false
	}
	for i, s := range share {
		switch {
		case s <= 0.001:
			flush(float64(i))
		case !open && s < 0.999:
			start, open = float64(i+1)-s, true
		case !open:
			start, open = float64(i), true
		case s < 0.999:
			flush(float64(i) + s)
		}
	}
	flush(float64(len(share)))
}
