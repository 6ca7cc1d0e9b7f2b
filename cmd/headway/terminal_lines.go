package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/observe/report"
)

// lines shows progress as plain lines, for files, pipes and logs.
type lines struct {
	app     *app.Process
	last    record.Progress
	shown   bool // last is printed
	any     bool // something was printed
	printed time.Time
}

// newLines prints the intro.
func newLines(a *app.Process, intro string) *lines {
	if intro != "" {
		fmt.Fprintln(a.Stderr, intro)
	}
	return &lines{app: a, shown: true}
}

func (l *lines) show(p record.Progress) {
	l.last, l.shown = p, false
	if now := l.app.Now(); !l.any || now.Sub(l.printed) >= command.LineEvery {
		l.print(now)
	}
}

func (l *lines) print(now time.Time) {
	fmt.Fprintln(l.app.Stderr, progressLine(l.last))
	l.printed, l.any, l.shown = now, true, true
}

func (l *lines) note(text string) { fmt.Fprintln(l.app.Stderr, text) }

func (l *lines) Close() {
	if !l.shown {
		l.print(l.app.Now())
	}
}

// progressLine is the state in one line. Figures that are not known are left out.
func progressLine(p record.Progress) string {
	var parts []string
	add := func(known float64, format string, values ...any) {
		if !math.IsNaN(known) {
			parts = append(parts, fmt.Sprintf(format, values...))
		}
	}
	add(0, "step %*d/%d", len(fmt.Sprint(p.Steps)), p.Step, p.Steps)
	add(p.Reward, "reward %.3f", p.Reward)
	add(p.Accuracy, "held-out %.3f@%d", p.Accuracy, p.AccuracyStep)
	add(p.Staleness, "staleness %.2f = PQS %.2f + IQS %.2f", p.Staleness, p.PQS, p.IQS)
	if p.Control != nil {
		parts = append(parts, api.GoalOf(p.Control).Brief(&p.Control.ControlStatus))
	}
	add(p.TrainerIdle+p.RolloutIdle, "idle trainer %s rollout %s", report.Share(p.TrainerIdle), report.Share(p.RolloutIdle))
	add(p.ClipFraction, "clip %s", report.Share(p.ClipFraction))
	if p.Rates.Steps > 0 {
		parts = append(parts, fmt.Sprintf("rollouts/s %s made %s trained", rateText(p.Rates.Production), rateText(p.Rates.ConsumptionWall)))
	}
	add(p.TokensPerS, "%s tokens/s", report.Figure(p.TokensPerS, 0))
	if p.ETA > 0 {
		parts = append(parts, "ETA "+duration(p.ETA))
	}
	return strings.Join(parts, "  ")
}

// duration prints a time as 1h02m, 3m05s or 7s.
func duration(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s >= 3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	case s >= 60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	default:
		return fmt.Sprintf("%ds", s)
	}
}
