package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// statusView prints statuses for people.
type statusView struct {
	to     io.Writer
	width  int
	full   bool // all of a status, instead of the answer alone
	live   bool // a terminal, where colours and clearing mean something
	colour bool
}

// The most that lines are wrapped to, and the column of labels.
const (
	statusWidth = 100
	statusLabel = 11
)

func newStatusView(a *app.Process, full bool) *statusView {
	v := &statusView{to: a.Stdout, full: full, width: min(command.Columns(a), statusWidth)}
	if a.IsTerminal(a.Stdout) {
		v.live = a.Getenv("TERM") != "dumb"
		v.colour = v.live && a.Getenv("NO_COLOR") == ""
	}
	return v
}

// show prints one status; on a terminal that is watched, over the one before.
func (v *statusView) show(s protocol.Status, watched bool) error {
	var page bytes.Buffer
	if s.Cell != "" {
		v.cell(&page, s)
	} else {
		answer := firstOfStatus(s)
		if v.full {
			answer.Rest = ""
		}
		page.WriteString(answer.Text(v.width))
		if v.full {
			page.WriteByte('\n')
			v.page(&page, s)
		}
	}
	switch {
	case watched && v.live:
		_, err := fmt.Fprintf(v.to, "\x1b[H\x1b[2J%s", page.Bytes())
		return err
	case watched:
		page.WriteByte('\n')
	}
	_, err := v.to.Write(page.Bytes())
	return err
}

// cell lays out what a cell says of its own process.
func (v *statusView) cell(to io.Writer, s protocol.Status) {
	p := &statusPage{to, v}
	p.line("cell", "%s of the run %s · %s · up %s", report.Plain(s.Cell), report.Plain(s.Run), p.state(s.State), report.Lasting(s.UptimeS))
	p.bounds(s.Bounds)
	p.clients(s)
	p.environment(s.Environment)
	p.engines(s.Engines)
	p.line("", "the control plane has version, queue, trainer and ledger")
}

// clients has those who play, and how they sample.
func (p *statusPage) clients(s protocol.Status) {
	if w := s.Workers; w.Known+w.Claimed+w.Offered+len(w.Silent) > 0 {
		p.line("workers", "%s", workerText(w))
	}
	if g := s.Gateway; g != nil {
		p.line("gateway", "%s", gatewayText(*g))
		if g.Finding != nil {
			p.line("", "%s", p.loud(report.Plain(g.Finding.Message)))
		}
	}
}

// page lays a status out.
func (v *statusView) page(to io.Writer, s protocol.Status) {
	p := &statusPage{to, v}
	p.health(s)
	p.line("run", "%s · %s · up %s", report.Plain(s.Run), p.state(s.State), report.Lasting(s.UptimeS))
	if s.Waits != "" {
		p.line("", "waits for %s", report.Plain(s.Waits))
	}
	p.bounds(s.Bounds)
	if s.Ledger.Admitted == 0 && s.Queue.CapacityGroups == 0 { // a standby, or one that has only begun
		p.sender(s.Sender)
		p.line("writer", "%s, epoch %d", report.Plain(s.Writer.Name), s.Writer.Epoch)
		return
	}
	p.line("version", "%s", versionText(s))
	p.stall(s)
	remark := fmt.Sprintf("; a batch takes %d", s.Queue.BatchGroups)
	if s.Steps > 0 && int(s.Version) >= s.Steps {
		remark = ", left when the run ended"
	}
	p.line("queue", "%s %d of %d groups%s", p.bar(s.Queue.Groups, s.Queue.CapacityGroups), s.Queue.Groups, s.Queue.CapacityGroups, remark)
	p.line("", "%s open, %d held back", report.Counted(s.Queue.LiveGroups, "group"), s.Queue.HeldGroups)
	p.line("rollouts", "%s", ledgerText(s.Ledger))
	p.line("ended", "%s", endedText(s.Ledger))
	if says := failuresText(s.Failures); says != "" {
		p.line("failed", "%s", says)
	}
	if !s.Ledger.Balanced {
		p.line("", "%s", p.loud("the ledger does not balance: this is a defect, and the log has the place"))
	}
	p.line("trainer", "%s", trainerText(s.Trainer))
	p.sender(s.Sender)
	p.clients(s)
	p.environment(s.Environment)
	p.scoring(s.Scoring)
	p.line("staleness", "%s · policy %s", stalenessText(s), report.Plain(s.Policy))
	if h := s.HeldOut; h != nil {
		p.line("held out", "%s", heldOutText(*h))
	}
	p.control(s.Control)
	p.engines(s.Engines)
	p.cells(s)
	if y := s.Sync; y != nil {
		p.line("sync", "version %d was served everywhere %s after its publish (load %s, wait %s, switch %s)", y.Version,
			shortSeconds(y.TotalS), shortSeconds(y.LoadS), shortSeconds(y.WaitS), shortSeconds(y.SwitchS))
	}
	p.line("disk", "%s", p.disk(s))
	if r := s.Recovery; r != nil {
		p.line("recovery", "%s", recoveryText(*r))
	}
	p.line("writer", "%s, epoch %d", report.Plain(s.Writer.Name), s.Writer.Epoch)
}

// bounds says which bounds bind on what clients together take.
func (p *statusPage) bounds(all []protocol.Bound) {
	for _, b := range all {
		if !b.Binding {
			continue
		}
		p.line("BOUND", "%s: %s of %s taken, %s refused so far", p.loud(report.Plain(b.Name)+" binds"), amountText(b.Name, b.Held), amountText(b.Name, b.Max), report.Count(b.Refused))
	}
}

// movesShown is how many of the newest moves a status prints.
const movesShown = 3

// control says how the goal is kept, and what moved last.
func (p *statusPage) control(c *protocol.Control) {
	if c == nil {
		return
	}
	says := report.Plain(c.Says)
	if c.State == control.Unreachable || c.State == control.Silent {
		says = p.loud(says)
	}
	p.line("target", "%s · %s", report.Plain(api.GoalOf(c).String()), control.Held(c.HeldSteps, c.HeldBatches, c.Steps))
	p.line("", "%s", says)
	p.line("settings", "%s", control.Settings(&c.ControlStatus))
	for _, m := range c.LastMoves[max(0, len(c.LastMoves)-movesShown):] {
		p.line("", "%s", control.Move(metrics.Move(m)))
	}
}

// statusPage writes labelled lines, wrapped to the width.
type statusPage struct {
	to io.Writer
	v  *statusView
}

func (p *statusPage) line(label, format string, args ...any) {
	io.WriteString(p.to, report.Indented(fmt.Sprintf("%-*s", statusLabel, label), fmt.Sprintf(format, args...), p.v.width))
}

// loud marks what must not be overlooked; on a terminal in colour. Words keep it together
// when they are wrapped.
func (p *statusPage) loud(text string) string {
	if !p.v.colour {
		return text
	}
	words := strings.Fields(text)
	for i := range words {
		words[i] = "\x1b[1;31m" + words[i] + "\x1b[0m"
	}
	return strings.Join(words, " ")
}

func (p *statusPage) state(state string) string {
	if state == "running" || state == "stopped" {
		return state
	}
	return p.loud(strings.ToUpper(report.Plain(state)))
}

// stall comes before everything that is well.
func (p *statusPage) stall(s protocol.Status) {
	if s.Stall == nil {
		if s.Held != nil {
			p.line("HELD UP", "%s", p.loud(report.Plain(s.Held.Message)))
		}
		return
	}
	p.line("STALLED", "%s", p.loud("no progress for "+report.Lasting(s.Stall.SinceS)))
	for _, f := range s.Stall.Findings {
		p.line("", "- %s: %s", p.loud(report.Plain(f.Code)), report.Plain(f.Message))
	}
}

func (p *statusPage) bar(n, of int) string {
	width := min(20, (p.v.width-statusLabel)/2-2)
	full := 0
	if of > 0 {
		full = min(width, int(math.Round(float64(width)*float64(n)/float64(of))))
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

func gatewayText(g protocol.Gateway) string {
	text := fmt.Sprintf("%s of %s · %s open", report.Counted(g.Turns, "turn"), report.Counted(g.Tokens, "token"), report.Counted(g.Open, "request"))
	if g.Offered > 0 {
		text += fmt.Sprintf(" · %s of tools", report.Counted(g.Calls, "call"))
		if g.CallsMissed > 0 {
			text += fmt.Sprintf(", %s that were none", report.Counted(g.CallsMissed, "attempt"))
		}
	}
	if g.Aborted > 0 {
		text += fmt.Sprintf(" · %s taken back", report.Count(g.Aborted))
	}
	if g.Refused > 0 {
		text += fmt.Sprintf(" · %s refused", report.Count(g.Refused))
	}
	return text
}

func (p *statusPage) disk(s protocol.Status) string {
	d, weights := s.Disk, report.Bytes(s.Disk.WeightsBytes)
	if s.Trainer.State == plane.TrainerService {
		weights = "at the service"
	}
	text := fmt.Sprintf("log %s and payloads %s of %s; weights %s", report.Bytes(d.LogBytes), report.Bytes(d.PayloadBytes), report.Bytes(d.BytesMax), weights)
	if d.Full {
		text += " · " + p.loud("FULL: writes wait for room")
	}
	return text
}

func versionText(s protocol.Status) string {
	switch {
	case s.Version < 0:
		return "none yet"
	case s.Steps > 0:
		return fmt.Sprintf("%d of %s", s.Version, report.Counted(s.Steps, "train step"))
	}
	return fmt.Sprint(s.Version)
}

func ledgerText(l protocol.Ledger) string {
	return fmt.Sprintf("%s in flight · %s waiting for their group · %s queued · %s leased",
		report.Count(l.InFlight), report.Count(l.Waiting), report.Count(l.Queued), report.Count(l.Leased))
}

func endedText(l protocol.Ledger) string {
	words := []string{report.Count(l.Trained) + " trained"}
	for _, end := range []struct {
		n    int64
		word string
	}{{l.Evicted, "evicted"}, {l.Discarded, "discarded"}, {l.Filtered, "filtered"}, {l.Pruned, "pruned"}, {l.Cancelled, "cancelled"}, {l.Failed, "failed"}} {
		if end.n > 0 {
			words = append(words, report.Count(end.n)+" "+end.word)
		}
	}
	return strings.Join(words, " · ") + " of " + report.Count(l.Admitted) + " admitted"
}

// heldOutText says what an evaluation found.
func heldOutText(h protocol.HeldOut) string {
	text := fmt.Sprintf("mean reward %.3f, %s wholly right, of %s from version %d on", h.Reward, report.Share(h.Accuracy), report.Counted(h.Scored, "prompt"), h.Version)
	if h.Newest > h.Oldest {
		text += fmt.Sprintf(" (sampled by %d to %d)", h.Oldest, h.Newest)
	}
	if h.Failed > 0 {
		text += fmt.Sprintf("; %s could not be scored", report.Counted(h.Failed, "other"))
	}
	return text
}

// failuresText says of what attempts failed, empty for none.
func failuresText(f protocol.Failures) string {
	var words []string
	if f.InfraRatio > 0 {
		words = append(words, fmt.Sprintf("%s infrastructure: %s engine, %s environment, %s timeout, %s other", report.Share(f.InfraRatio),
			report.Count(f.Engine), report.Count(f.Environment), report.Count(f.Timeout), report.Count(f.Other)))
	}
	if f.Scorer > 0 {
		words = append(words, fmt.Sprintf("%s unscored", report.Counted(f.Scorer, "attempt")))
	}
	if f.Data > 0 {
		words = append(words, fmt.Sprintf("%s data: %s", report.Share(f.DataRatio), report.Counted(f.Data, "attempt")))
	}
	return strings.Join(words, " · ")
}

func trainerText(t protocol.Trainer) string {
	text := report.Plain(t.State)
	if t.Name != "" {
		text = report.Plain(t.Name) + " · " + text
	}
	if t.Lease != 0 {
		text += fmt.Sprintf(" · batch %d", t.Lease)
	}
	if t.WorldSize > 1 {
		text += fmt.Sprintf(" · %d ranks", t.WorldSize)
	}
	if t.Name != "" {
		text += fmt.Sprintf(" · last heard of %s ago", shortSeconds(t.SilentS))
	}
	if t.State == "absent" {
		return text // it has nothing to be idle beside
	}
	return text + fmt.Sprintf(" · idle %.0f %%", 100*t.IdleRatio)
}

func stalenessText(s protocol.Status) string {
	if s.Ledger.Trained == 0 {
		return "no group has been trained yet"
	}
	x := s.Staleness
	return fmt.Sprintf("mean %.2f versions (%.2f before the queue, %.2f in it), p95 %.3g, most %.3g", x.Mean, x.PQS, x.IQS, x.P95, x.Max)
}

func workerText(w protocol.Workers) string {
	text := fmt.Sprintf("%d known · %s claimed · %d wait for one", w.Known, report.Counted(w.Claimed, "rollout"), w.Offered)
	if len(w.Silent) > 0 {
		names := make([]string, len(w.Silent))
		for i, name := range w.Silent {
			names[i] = report.Plain(name)
		}
		text += " · silent: " + strings.Join(names, ", ")
	}
	return text
}

func recoveryText(r protocol.Recovery) string {
	text := fmt.Sprintf("took %s: a snapshot and %s after it", shortSeconds(r.WallS), report.Counted(r.Events, "event"))
	if r.Takeover {
		text += " · taken over from another process"
	}
	if r.Restarts > 1 {
		text += fmt.Sprintf(" · the run's %d recoveries in all", r.Restarts)
	}
	return text
}

// shortSeconds writes a short time with two digits or so.
func shortSeconds(seconds float64) string {
	switch {
	case seconds < 1:
		return fmt.Sprintf("%.0f ms", seconds*1000)
	case seconds < 60:
		return fmt.Sprintf("%.1f s", seconds)
	}
	return report.Lasting(seconds)
}
