package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/observe/report"
)

// environment says what the control plane's own players, sandboxes and verifier do.
func (p *statusPage) environment(e *protocol.EnvironmentStatus) {
	if e == nil {
		return
	}
	n := &e.Episodes
	text := fmt.Sprintf("%d being played · %s scored", n.Playing, report.Count(n.Scored))
	if n.Scored > 0 {
		text += fmt.Sprintf(", mean reward %.3g", n.RewardSum/float64(n.Scored))
	}
	if n.Unwanted > 0 {
		text += fmt.Sprintf(" · %s given up", report.Count(n.Unwanted))
	}
	if n.Failed > 0 {
		text += " · " + p.loud(report.Count(n.Failed)+" failed") + " (" + classText(n.Failures) + ")"
	}
	p.line("episodes", "%s", text)
	for _, s := range n.Parts {
		p.line("", "%s", spentText(s))
	}
	if len(n.Limits) > 0 {
		p.line("", "limits that code met: %s", classText(n.Limits))
	}
	p.sandboxes(e.Sandboxes)
	p.verifier(e.Verifier)
}

// partNames are what the parts of an episode are called for people.
var partNames = map[string]string{
	"model": "model", "sandbox_wait": "wait for a sandbox", "sandbox_start": "sandbox start", "tool": "tools", "verifier_wait": "wait for the verifier", "verifier": "verifier",
}

func spentText(s protocol.Spent) string {
	name := partNames[s.Part]
	if name == "" {
		name = report.Plain(s.Part)
	}
	return fmt.Sprintf("%s %s an episode (p50 %s, p99 %s) in %s of them", name, shortSeconds(s.MeanS), shortSeconds(s.P50S), shortSeconds(s.P99S), report.Count(s.Episodes))
}

func (p *statusPage) sandboxes(s *protocol.Sandboxes) {
	if s == nil {
		return
	}
	text := fmt.Sprintf("%s · %d in use, %d ready of %d wanted, %d starting", report.Plain(s.Driver), s.Leased, s.Warm, s.WarmWanted, s.Starting)
	if s.Waiting > 0 {
		text += " · waiting for one: " + report.Counted(s.Waiting, "rollout")
	}
	if s.Broken {
		text += " · " + p.loud("the backend is held to be sick: none is started for the moment")
	}
	p.line("sandboxes", "%s", text)
	handed := s.Created + s.Reused
	text = fmt.Sprintf("%s made, %s used again; %s of %s stood ready; a start takes %s (p99 %s)", report.Count(s.Created), report.Count(s.Reused),
		report.Count(s.Hits), report.Count(handed), shortSeconds(s.StartS.P50), shortSeconds(s.StartS.P99))
	if len(s.Failures) > 0 {
		text += " · failures: " + classText(s.Failures)
	}
	p.line("", "%s", text)
	if !s.Secure {
		p.line("", "%s", p.loud("no boundary: "+report.Plain(s.Lacks)))
	}
}

func (p *statusPage) verifier(v *protocol.Verifier) {
	if v == nil {
		return
	}
	text := fmt.Sprintf("%s · %s, each takes %s (p99 %s) · %d judged now, %d wait", report.Plain(v.Kind), report.Counted(v.Verdicts, "verdict"),
		shortSeconds(v.VerdictS.P50), shortSeconds(v.VerdictS.P99), v.Running, v.Waiting)
	if len(v.Failures) > 0 {
		text += " · failures: " + classText(v.Failures)
	}
	p.line("verifier", "%s", text)
}

// scoring says what teachers and references do, and why the last call of one failed.
func (p *statusPage) scoring(channels []protocol.Scoring) {
	for _, c := range channels {
		for i, s := range c.Servers {
			name := ""
			if i == 0 {
				name = c.Channel
			}
			text := fmt.Sprintf("%s · %d of %d slots · %s", report.Plain(s.Name), s.Running, s.Slots, report.Counted(s.Calls, "answer"))
			if calls := s.Calls + s.Failures; calls > 0 {
				text += ", each takes " + shortSeconds(s.Seconds/float64(calls))
			}
			if s.Failures > 0 {
				text += " · " + p.loud(report.Count(s.Failures)+" failed") + ", the last: " + report.Plain(s.LastError)
			}
			p.line(name, "%s", text)
		}
		if c.Waiting > 0 {
			p.line("", "%s for a slot", report.Counted(int64(c.Waiting), "sequence")+" wait")
		}
	}
}

// classText lists counts by class, the most first.
func classText(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return int(counts[b] - counts[a])
		}
		return strings.Compare(a, b)
	})
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = fmt.Sprintf("%s %s", report.Count(counts[name]), report.Plain(name))
	}
	return strings.Join(words, ", ")
}
