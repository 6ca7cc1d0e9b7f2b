package main

import (
	"fmt"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/report"
)

// failedMuch is the share of attempts that fail from which on the answer says so.
const failedMuch = 0.05

// firstOfStatus says how a run goes, and what to do about it: what stands still first, then what will, then what binds.
func firstOfStatus(s protocol.Status) report.Answer {
	a := report.Answer{Verdict: statusVerdict(s), Rest: "--full has queue, engines, trainer and disk, --json all."}
	do := func(format string, args ...any) {
		a.Advice = append(a.Advice, report.Advice{Do: report.Plain(fmt.Sprintf(format, args...))})
	}
	if s.Stall != nil {
		for _, f := range s.Stall.Findings {
			do("%s", f.Message)
		}
	}
	if missing, _ := missingText(s); missing != "" && s.Stall == nil {
		do("%s", missing)
	}
	if s.Forward != nil {
		do("%s", s.Forward.Message)
	}
	if s.Gateway != nil && s.Gateway.Finding != nil {
		do("%s", s.Gateway.Finding.Message)
	}
	if s.Held != nil && s.Stall == nil {
		do("%s", s.Held.Message)
	}
	if !s.Ledger.Balanced && s.Ledger.Admitted > 0 {
		do("the ledger does not balance: this is a defect, and the log has the place")
	}
	if f := s.Failures; f.InfraRatio > failedMuch {
		do("%s of the attempts fail by the infrastructure and are tried again: look at machines, sandboxes and verifiers; the log has their errors", report.Share(f.InfraRatio))
	}
	if f := s.Failures; f.DataRatio > failedMuch {
		do("%s of the attempts have a task that cannot be played or judged: mend those tasks, or leave them out; the log has their errors", report.Share(f.DataRatio))
	}
	if s.Disk.Full {
		do("the disk is full: writes wait for room, of which the store may take %s", report.Bytes(s.Disk.BytesMax))
	}
	if len(s.Limits) > 0 && s.Limits[0].Share >= limitMuch {
		do("%s: give some of its engines to another cell", limitText(s.Limits[0]))
	}
	for _, b := range s.Bounds {
		if b.Binding {
			do("bound %s binds: %s refused so far", b.Name, report.Count(b.Refused))
		}
	}
	if c := s.Control; c != nil && (c.State == control.Unreachable || c.State == control.Silent) {
		do("target %s: %s", api.GoalOf(c).String(), c.Says)
	}
	if says := fullText(s); says != "" && s.Stall == nil {
		a.Notes = append(a.Notes, says+".")
	}
	if _, stands := missingText(s); len(a.Advice) == 0 && !stands && s.Throughput.Steps > 0 {
		switch says := bindingOf(s); {
		case says == "":
		case workersBind(s):
			a.Notes = append(a.Notes, says+".")
		default:
			a.Notes = append(a.Notes, says+"; headway diagnose says what to change.")
		}
	}
	return a
}

// statusVerdict is the state of a run in a sentence or two.
func statusVerdict(s protocol.Status) string {
	text := fmt.Sprintf("Run %s, %s, up %s", report.Plain(s.Run), report.Plain(s.State), report.Lasting(s.UptimeS))
	switch {
	case s.Waits != "":
		return text + ": waits for " + report.Plain(s.Waits) + "."
	case s.Stall != nil:
		return text + fmt.Sprintf(": NO PROGRESS for %s, at version %s.", report.Lasting(s.Stall.SinceS), versionText(s))
	}
	text += ": version " + versionText(s)
	if _, stands := missingText(s); stands || s.Throughput.Steps == 0 {
		return text + "."
	}
	return text + fmt.Sprintf(", %s rollouts/s trained, staleness %.2f (p95 %.3g), the trainer idle %s.",
		rateText(s.Throughput.ConsumptionRolloutsPerWallS), s.Staleness.Mean, s.Staleness.P95, report.Share(s.Throughput.TrainerIdleRatio))
}
