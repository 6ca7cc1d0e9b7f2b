package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/report"
)

// terminal shows progress as a view that is drawn over in place.
type terminal struct {
	program  *tea.Program
	ended    chan error
	dead     bool // the program ended before it was closed
	fallback *lines
}

// newTerminal starts the view. interrupt is called for every Ctrl-C, which
// reaches the program as a key while it has the terminal.
func newTerminal(a *app.Process, intro string, interrupt func()) *terminal {
	view := liveView{intro: intro, interrupt: interrupt, width: widthDefault, styles: stylesOf(a.Getenv("NO_COLOR") != "")}
	var input io.Reader
	if a.IsTerminal(a.Stdin) {
		input = a.Stdin
	}
	options := []tea.ProgramOption{tea.WithOutput(a.Stderr), tea.WithInput(input), tea.WithoutSignalHandler(), tea.WithFPS(framesPerS)}
	if _, ok := a.Stderr.(*os.File); !ok {
		options = append(options, tea.WithWindowSize(widthDefault, heightDefault)) // nobody else would say
	}
	t := &terminal{
		program: tea.NewProgram(view, options...),
		ended:   make(chan error, 1),
		// If the view cannot run, the run's progress is still worth a line.
		fallback: newLines(a, ""),
	}
	go func() {
		_, err := t.program.Run()
		t.ended <- err
	}()
	return t
}

// framesPerS is how often the view is drawn at most.
const framesPerS = 10

// alive reports whether the view still runs; where it does not, and not because
// it was closed, lines take its place.
func (t *terminal) alive() bool {
	if t.dead {
		return false
	}
	select {
	case err := <-t.ended:
		t.dead = true
		if err != nil {
			t.fallback.note("the live view ended: " + err.Error())
		}
		return false
	default:
		return true
	}
}

func (t *terminal) show(p record.Progress) {
	if t.alive() {
		t.program.Send(p)
	} else {
		t.fallback.show(p)
	}
}

func (t *terminal) note(text string) {
	if t.alive() {
		t.program.Send(note(text))
	} else {
		t.fallback.note(text)
	}
}

func (t *terminal) Close() {
	if !t.alive() {
		t.fallback.Close()
		return
	}
	t.program.Send(last{})
	if err := <-t.ended; err != nil {
		t.fallback.note("the live view ended: " + err.Error())
	}
}

// note is a line that stays, printed says that one is; last asks the view for
// its last picture.
type (
	note    string
	printed struct{}
	last    struct{}
)

// Layout of the live view, in cells.
const (
	widthDefault  = 80
	widthMax      = 100
	heightDefault = 24
	historyMax    = 48 // values in a sparkline
)

// liveView is the state of the view.
type liveView struct {
	intro     string
	state     record.Progress
	started   bool // a state has come
	rewards   []float64
	lag       []float64
	width     int
	stopping  bool
	ended     bool
	unprinted int // notes on their way above the view
	interrupt func()
	styles    styles
}

// styles are the view's few looks; the plain ones leave text as it is.
type styles struct {
	title, quiet, good, warm lipgloss.Style
}

// stylesOf returns the looks, all plain where colour is not wanted.
func stylesOf(plain bool) styles {
	if plain {
		return styles{lipgloss.NewStyle(), lipgloss.NewStyle(), lipgloss.NewStyle(), lipgloss.NewStyle()}
	}
	return styles{
		title: lipgloss.NewStyle().Bold(true),
		quiet: lipgloss.NewStyle().Faint(true),
		good:  lipgloss.NewStyle().Foreground(lipgloss.Color("6")),
		warm:  lipgloss.NewStyle().Foreground(lipgloss.Color("3")),
	}
}

// Init implements tea.Model.
func (v liveView) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (v liveView) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case record.Progress:
		if m.Step != v.state.Step || !v.started {
			v.rewards = remember(v.rewards, m.Reward)
			v.lag = remember(v.lag, m.Staleness)
		}
		v.state, v.started = m, true
	case note:
		v.unprinted++
		return v, tea.Sequence(tea.Println(string(m)), func() tea.Msg { return printed{} })
	case printed:
		v.unprinted--
		return v, v.quit()
	case last:
		v.ended = true
		return v, v.quit()
	case tea.WindowSizeMsg:
		v.width = min(max(m.Width, 20), widthMax)
	case tea.KeyPressMsg:
		if m.String() == "ctrl+c" {
			v.stopping = true
			// The callback may take its time: it belongs to the run.
			return v, func() tea.Msg { v.interrupt(); return nil }
		}
	}
	return v, nil
}

// quit ends the view once nothing is on its way any more.
func (v liveView) quit() tea.Cmd {
	if v.ended && v.unprinted == 0 {
		return tea.Quit
	}
	return nil
}

// remember appends a known value to a bounded history, into a slice of its own.
func remember(history []float64, value float64) []float64 {
	if math.IsNaN(value) {
		return history
	}
	kept := history[max(0, len(history)-historyMax+1):]
	return append(append(make([]float64, 0, historyMax), kept...), value)
}

// View implements tea.Model.
func (v liveView) View() tea.View {
	return tea.NewView(v.text())
}

// text is the picture.
func (v liveView) text() string {
	var rows []string
	for line := range strings.SplitSeq(v.intro, "\n") {
		if line != "" {
			rows = append(rows, v.styles.title.Render(clip(line, v.width)))
		}
	}
	if !v.started {
		return strings.Join(append(rows, v.styles.quiet.Render("waiting for the first train step")), "\n") + "\n"
	}
	p := v.state
	rows = append(rows, v.bar(), v.row("health", "", flowText(p)),
		v.row("reward", known(p.Reward, "%.3f"), sparkline(v.rewards)),
		v.row("held-out", known(p.Accuracy, "%.3f"), accuracyNote(p)),
		v.row("staleness", known(p.Staleness, "%.2f"), v.split()),
		v.row("", "", sparkline(v.lag)),
	)
	rows = append(rows, v.control()...)
	rows = append(rows,
		v.row("idle", "", fmt.Sprintf("trainer %s · rollout %s", report.Share(p.TrainerIdle), report.Share(p.RolloutIdle))),
		v.row("queue", fmt.Sprint(p.QueueGroups), fmt.Sprintf("of %d groups · %d of %d slots generate", p.QueueCapacity, p.Active, p.Slots)),
		v.row("speed", known(p.TokensPerS, "%.0f"), fmt.Sprintf("tokens/s · clip fraction %s · version %d", report.Share(p.ClipFraction), p.Version)),
	)
	if !v.ended {
		hint := "ctrl+c finishes the train step, saves and says how to resume"
		if v.stopping {
			hint = "stopping after the running train step · ctrl+c again stops at once"
		}
		rows = append(rows, v.styles.quiet.Render(clip(hint, v.width)))
	}
	return strings.Join(rows, "\n") + "\n"
}

// flowText say what enters the queue and what leaves it.
func flowText(p record.Progress) string {
	r := p.Rates
	if r.Steps == 0 {
		return "from the second train step on"
	}
	text := fmt.Sprintf("%s/s made → queue %d/%d → %s/s trained", rateText(r.Production), p.QueueGroups, p.QueueCapacity, rateText(r.ConsumptionWall))
	if r.Dropped > 0.005*r.Production {
		text += fmt.Sprintf(", %s/s dropped", rateText(r.Dropped))
	}
	return text
}

// row is one figure with what explains it.
func (v liveView) row(name, value, rest string) string {
	const nameWidth, valueWidth = 10, 7
	rest = clip(rest, v.width-nameWidth-valueWidth-2)
	return fmt.Sprintf("%s%*s  %s", v.styles.quiet.Render(fmt.Sprintf("%-*s", nameWidth, name)), valueWidth, value, v.styles.good.Render(rest))
}

// bar is how far the run is.
func (v liveView) bar() string {
	label := fmt.Sprintf(" %d/%d  %s", v.state.Step, v.state.Steps, duration(v.state.Elapsed))
	if v.state.ETA > 0 && !v.ended {
		label += "  ETA " + duration(v.state.ETA)
	}
	room := max(v.width-len([]rune(label)), 4)
	full := int(share(v.state) * float64(room))
	return v.styles.good.Render(strings.Repeat("█", full)) + v.styles.quiet.Render(strings.Repeat("░", room-full)) + label
}

// split shows the two parts of the staleness as one bar, before the queue and in
// it, with their figures.
func (v liveView) split() string {
	p := v.state
	if math.IsNaN(p.Staleness) {
		return ""
	}
	const cells = 20
	before := 0
	if p.Staleness > 0 {
		before = int(math.Round(cells * min(max(p.PQS/p.Staleness, 0), 1)))
	}
	return fmt.Sprintf("%s%s PQS %.2f before + IQS %.2f in the queue", strings.Repeat("▓", before), strings.Repeat("░", cells-before), p.PQS, p.IQS)
}

// control is the goal beside what was measured, and where the settings stand.
func (v liveView) control() []string {
	c := v.state.Control
	if c == nil {
		return nil
	}
	rows := []string{v.row("target", "", api.GoalOf(c).String()+" · "+c.Says)}
	if c.State == control.Unreachable || c.State == control.Silent {
		rows = []string{v.row("target", "", api.GoalOf(c).String()), v.styles.warm.Render(clip(c.Says, v.width))}
	}
	return append(rows, v.row("settings", "", control.Settings(&c.ControlStatus)))
}

// accuracyNote says of which version the accuracy is.
func accuracyNote(p record.Progress) string {
	if math.IsNaN(p.Accuracy) {
		return "not evaluated yet"
	}
	return fmt.Sprintf("greedy accuracy of version %d", p.AccuracyStep)
}

// known prints a number, "–" while it is not known.
func known(value float64, format string) string {
	if math.IsNaN(value) {
		return "–"
	}
	return fmt.Sprintf(format, value)
}

// sparkline draws values as bars between the least and the greatest of them.
func sparkline(values []float64) string {
	if len(values) < 2 {
		return ""
	}
	low, high := values[0], values[0]
	for _, value := range values {
		low, high = min(low, value), max(high, value)
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	drawn := make([]rune, len(values))
	for i, value := range values {
		level := 0
		if high > low {
			level = int(math.Round((value - low) / (high - low) * float64(len(levels)-1)))
		}
		drawn[i] = levels[level]
	}
	return string(drawn)
}

// clip shortens text to a width in cells.
func clip(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(width-1, 0)]) + "…"
}
