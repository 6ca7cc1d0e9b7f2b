package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/report"
)

// topHistory is how many looks the sparklines remember.
const topHistory = 120

// topView is the state of headway top.
type topView struct {
	address string
	now     func() time.Time
	every   float64
	ask     func() tea.Msg
	styles  styles

	status protocol.Status
	at     time.Time
	// failed is why the last look found nothing, since when; nil while it does.
	failed error
	since  time.Time
	// What the looks found, one value a look.
	made, trained, staleness, queue, idle []float64

	width, height int
	paused, help  bool
	// engine is the first engine that is listed, by whichever order.
	engine int
	byLag  bool
}

func newTopView(address string, now func() time.Time, every float64, plain bool) *topView {
	return &topView{address: address, now: now, every: every, styles: stylesOf(plain), width: widthDefault, height: heightDefault}
}

// take remembers a status.
func (v *topView) take(s protocol.Status) {
	v.status, v.at, v.failed = s, v.now(), nil
	add := func(history *[]float64, value float64) {
		*history = append(*history, value)
		*history = (*history)[max(0, len(*history)-topHistory):]
	}
	add(&v.made, s.Throughput.ProductionRolloutsPerS)
	add(&v.trained, s.Throughput.ConsumptionRolloutsPerWallS)
	add(&v.staleness, s.Staleness.Mean)
	add(&v.queue, float64(s.Queue.Groups))
	add(&v.idle, s.Throughput.TrainerIdleRatio)
}

// Init implements tea.Model.
func (v *topView) Init() tea.Cmd { return after(v.every) }

// Update implements tea.Model.
func (v *topView) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case due:
		if v.paused {
			return v, after(v.every)
		}
		return v, v.ask
	case looked:
		if m.err == nil {
			v.take(m.status)
		} else if v.failed == nil {
			v.failed, v.since = m.err, v.at
		} else {
			v.failed = m.err
		}
		return v, after(v.every)
	case tea.WindowSizeMsg:
		v.width, v.height = max(m.Width, command.ColumnsMin), max(m.Height, 8)
	case tea.KeyPressMsg:
		return v, v.key(m.String())
	}
	return v, nil
}

// key obeys one key.
func (v *topView) key(name string) tea.Cmd {
	switch name {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "p", "space":
		v.paused = !v.paused
	case "?", "h":
		v.help = !v.help
	case "s":
		v.byLag, v.engine = !v.byLag, 0
	case "down", "j":
		v.engine = min(v.engine+1, max(len(v.status.Engines)-1, 0))
	case "up", "k":
		v.engine = max(v.engine-1, 0)
	case "+":
		v.every = max(v.every/2, 0.1)
	case "-":
		v.every = min(v.every*2, 60)
	}
	return nil
}

// View implements tea.Model.
func (v *topView) View() tea.View {
	view := tea.NewView(v.text())
	view.AltScreen = true
	return view
}

// text is the picture, no higher than the terminal.
func (v *topView) text() string {
	rows := v.head()
	if v.help {
		rows = append(rows, topKeys...)
	} else {
		rows = append(rows, v.flow()...)
		rows = append(rows, v.figures()...)
		rows = append(rows, v.engines(v.height-len(rows)-2)...)
	}
	hint := fmt.Sprintf("q leaves · p pauses · s sorts engines by lag · + - every %g s · ? keys", v.every)
	if v.paused {
		hint = "PAUSED · p goes on · " + hint
	}
	rows = rows[:min(len(rows), v.height-1)]
	rows = append(rows, v.styles.quiet.Render(clip(hint, v.width)))
	return strings.Join(rows, "\n")
}

var topKeys = []string{
	"", "  q, esc      leave", "  p, space    pause, and go on", "  s           engines by how far they lag, or in their order",
	"  j k, arrows scroll engines", "  + -         look more or less often", "  ?           these keys, or the run again",
}

// head is whose state this is, and what is wrong.
func (v *topView) head() []string {
	s := v.status
	title := fmt.Sprintf("%s · %s · version %s · up %s", report.Plain(s.Run), report.Plain(s.State), versionText(s), report.Lasting(s.UptimeS))
	rows := []string{v.styles.title.Render(clip(title, v.width))}
	if v.failed != nil {
		words := fmt.Sprintf("no answer from %s for %s: %s", v.address, duration(v.now().Sub(v.since)), report.Plain(v.failed.Error()))
		rows = append(rows, v.styles.warm.Render(clip(words, v.width)))
	}
	if absent, _ := missingText(s); absent != "" {
		rows = append(rows, v.wrapped(v.styles.warm, "", absent)...)
	}
	if s.Stall != nil {
		rows = append(rows, v.wrapped(v.styles.warm, "", "STALLED: no progress for "+report.Lasting(s.Stall.SinceS))...)
		for _, f := range s.Stall.Findings {
			rows = append(rows, v.wrapped(lipgloss.NewStyle(), "  ", report.Plain(f.Code)+": "+report.Plain(f.Message))...)
		}
	} else if s.Held != nil {
		rows = append(rows, v.wrapped(v.styles.warm, "", "HELD UP: "+report.Plain(s.Held.Message))...)
	}
	return rows
}

// wrapped breaks words that say what is wrong, or what binds, between rows: none of them may be cut.
func (v *topView) wrapped(style lipgloss.Style, indent, words string) []string {
	rows := report.Wrap(report.Plain(words), v.width-len(indent))
	for i := range rows {
		rows[i] = style.Render(clip(indent+rows[i], v.width))
	}
	return rows
}

// flow is queue health: what enters, what waits, what leaves.
func (v *topView) flow() []string {
	s := v.status
	t := s.Throughput
	if t.Steps == 0 {
		return []string{"", clip(ratesUnknown, v.width), ""}
	}
	rows := []string{"in the steps before"}
	if _, stands := missingText(s); !stands {
		rows = v.wrapped(v.styles.good, "", bindingOf(s))
	}
	gauge := (&statusPage{v: &statusView{width: v.width}}).bar(s.Queue.Groups, s.Queue.CapacityGroups)
	return append(rows,
		v.row("made", rateText(t.ProductionRolloutsPerS), "rollouts/s", v.made),
		v.row("of use", rateText(t.EffectiveRolloutsPerS), "rollouts/s, without filtered groups", nil),
		v.row("queue", fmt.Sprint(s.Queue.Groups), fmt.Sprintf("of %d groups %s %+.2g a step", s.Queue.CapacityGroups, gauge, t.QueueTrendGroupsPerStep), v.queue),
		v.row("trained", rateText(t.ConsumptionRolloutsPerWallS), fmt.Sprintf("rollouts/s; %s/s while it trains", rateText(t.ConsumptionRolloutsPerS)), v.trained),
		v.row("dropped", rateText(t.DroppedRolloutsPerS), "rollouts/s, evicted or stale", nil),
		v.row("idle", report.Share(t.TrainerIdleRatio), "trainer; engines "+report.Share(t.RolloutIdleRatio), v.idle),
	)
}

// figures are staleness, the ledger and who is connected.
func (v *topView) figures() []string {
	s := v.status
	ledger := ledgerText(s.Ledger)
	if !s.Ledger.Balanced {
		ledger = "DOES NOT BALANCE: " + ledger
	}
	rows := []string{
		v.row("staleness", known(s.Staleness.Mean, "%.2f"), fmt.Sprintf("= %.2f before + %.2f in the queue, p95 %.3g", s.Staleness.PQS, s.Staleness.IQS, s.Staleness.P95), v.staleness),
		v.row("rollouts", "", ledger, nil),
		v.row("ended", "", endedText(s.Ledger), nil),
		v.row("trainer", "", trainerText(s.Trainer), nil),
	}
	rows = append(rows, v.control()...)
	if w := s.Workers; w.Known+w.Claimed+w.Offered+len(w.Silent) > 0 {
		rows = append(rows, v.row("workers", "", workerText(w), nil))
	}
	if s.Disk.Full {
		rows = append(rows, v.styles.warm.Render("the disk is full: writes wait for room"))
	}
	return rows
}

// control is the goal, what was measured of it, and where the settings stand.
func (v *topView) control() []string {
	c := v.status.Control
	if c == nil {
		return nil
	}
	rows := []string{v.row("target", "", report.Plain(api.GoalOf(c).String())+" · "+control.Held(c.HeldSteps, c.HeldBatches, c.Steps), nil)}
	says := clip(report.Plain(c.Says), v.width)
	if c.State == control.Unreachable || c.State == control.Silent {
		says = v.styles.warm.Render(says)
		rows = append(rows, says)
	} else {
		rows = append(rows, v.row("", "", report.Plain(c.Says), nil))
	}
	return append(rows, v.row("settings", "", control.Settings(&c.ControlStatus), nil))
}

// row is one figure, with its history where there is room.
func (v *topView) row(name, value, rest string, history []float64) string {
	const nameWidth, valueWidth = 10, 7
	room := v.width - nameWidth - valueWidth - 2
	rest = clip(rest, room)
	line := fmt.Sprintf("%s%*s  %s", v.styles.quiet.Render(fmt.Sprintf("%-*s", nameWidth, name)), valueWidth, value, rest)
	const column = 50
	if history != nil && room > column+8 {
		drawn := sparkline(history[max(0, len(history)-(room-column)):])
		line += strings.Repeat(" ", max(column-len([]rune(rest)), 1)) + v.styles.good.Render(drawn)
	}
	return line
}

// engines lists as many as there is room for.
func (v *topView) engines(room int) []string {
	all := slices.Clone(v.status.Engines)
	if len(all) == 0 || room < 2 {
		return nil
	}
	lag := func(e protocol.Engine) loop.Version {
		if e.Version < 0 { // it has loaded none
			return 0
		}
		return v.status.Version - e.Version
	}
	if v.byLag {
		slices.SortStableFunc(all, func(a, b protocol.Engine) int { return int(lag(b) - lag(a)) })
	}
	rows := []string{v.styles.quiet.Render(clip(fmt.Sprintf("%-20s %-10s %-10s %8s %5s  slots", "engine", "kind", "state", "version", "lag"), v.width))}
	first := min(v.engine, max(len(all)-room+1, 0))
	for _, e := range all[first:min(first+room-1, len(all))] {
		rows = append(rows, v.engineRow(e, lag(e)))
	}
	return rows
}

func (v *topView) engineRow(e protocol.Engine, lag loop.Version) string {
	const cells = 10
	full := 0
	if e.Slots > 0 {
		full = int(math.Round(cells * float64(e.Active) / float64(e.Slots)))
	}
	full = min(max(full, 0), cells)
	version, behind := "–", "–"
	if e.Version >= 0 {
		version, behind = fmt.Sprint(e.Version), fmt.Sprint(lag)
	}
	line := clip(fmt.Sprintf("%-20s %-10s %-10s %8s %5s  %s%s %d/%d", clip(report.Plain(e.Name), 20), clip(report.Plain(e.Kind), 10), clip(report.Plain(e.State), 10), version, behind,
		strings.Repeat("█", full), strings.Repeat("░", cells-full), e.Active, e.Slots), v.width)
	if e.State == "lost" || e.State == "quarantined" {
		return v.styles.warm.Render(line)
	}
	return line
}
