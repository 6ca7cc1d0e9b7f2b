package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
)

// enginesMax is how many engines are listed; more are counted.
const enginesMax = 16

func (p *statusPage) engines(all []protocol.Engine) {
	states := map[string]int{}
	for i, e := range all {
		states[e.State]++
		if i >= enginesMax {
			continue
		}
		label := ""
		if i == 0 {
			label = "engines"
		}
		state := report.Plain(e.State)
		if state == "lost" || state == "quarantined" {
			state = p.loud(state)
		}
		stages := ""
		for _, stage := range e.Stages {
			stages += fmt.Sprintf(" · stage %d at %d (%s)", stage.Stage, stage.Version, report.Plain(stage.State))
		}
		kind := report.Plain(e.Kind)
		if e.Cell != "" {
			kind += ", cell " + report.Plain(e.Cell)
		}
		p.line(label, "%s (%s) %s at %s, %d of %d slots busy%s", report.Plain(e.Name), kind, state, servedText(e.Version), e.Active, e.Slots, stages)
		if words := startedText(e.Started); words != "" {
			p.line("", "%s", report.Plain(words))
		}
		if e.State != "away" {
			p.server(e.Server)
		}
	}
	if more := len(all) - enginesMax; more > 0 {
		var words []string
		for _, state := range slices.Sorted(maps.Keys(states)) {
			words = append(words, fmt.Sprintf("%d %s", states[state], report.Plain(state)))
		}
		p.line("", "and %d more; of all, %s", more, strings.Join(words, ", "))
	}
}

// sender says who has the trainer's weights, and which engines wait for that.
func (p *statusPage) sender(s *protocol.Sender) {
	if s == nil {
		return
	}
	words := []string{p.loud("absent: no process is there that has the trainer's weights; start it with a Sender (headway.torch), and a token of role trainer")}
	switch s.State {
	case collective.StateServing:
		words = []string{report.Plain(s.Name) + " (" + report.Plain(s.Backend) + ")", "holds " + versionsHeld(s.Holds), "in groups with " + report.Counted(len(s.Groups), "engine")}
		if s.SilentS >= senderQuietS {
			words = append(words, p.loud("last heard of "+shortSeconds(s.SilentS)+" ago"))
		}
	case collective.StateLost:
		words = []string{report.Plain(s.Name), p.loud("lost: last heard of " + shortSeconds(s.SilentS) + " ago; start its process again")}
	}
	p.line("sender", "%s", strings.Join(words, " · "))
	if len(s.Waiting) > 0 {
		p.line("", "%s", p.loud("engines wait for it: "+report.Plain(strings.Join(s.Waiting, ", "))))
	}
	p.joining(s.Joining)
}

// senderQuietS is how long a sender may say nothing before that is shown: one that is there has a request
// open but for moments.
const senderQuietS = 3

// joining says which engines make groups with the sender, and of those that take long the one that has longest.
func (p *statusPage) joining(all []protocol.SenderJoining) {
	if len(all) == 0 {
		return
	}
	late := slices.MaxFunc(all, func(a, b protocol.SenderJoining) int { return cmp.Compare(a.ForS, b.ForS) })
	words := report.Counted(len(all), "engine") + " joining"
	switch {
	case late.Late && late.Address == "":
		words = p.loud(words + ": the sender was told " + shortSeconds(late.ForS) + " ago to meet " + report.Plain(late.Engine) + " and has not come; look at the log of its process")
	case late.Late:
		words = p.loud(words + ": " + report.Plain(late.Engine) + " has tried for " + shortSeconds(late.ForS) + " to reach the sender at " + report.Plain(late.Address) + "; see whether that is the right address (host= of the Sender) and no firewall is between")
	}
	p.line("", "%s", words)
}

// versionsHeld names the versions that a sender has.
func versionsHeld(versions []loop.Version) string {
	if len(versions) == 0 {
		return "no version"
	}
	words := make([]string, len(versions))
	for i, v := range versions {
		words[i] = fmt.Sprint(v)
	}
	if len(words) > 1 {
		return "versions " + strings.Join(words, ", ")
	}
	return "version " + words[0]
}

// server says of an engine what is known of its server.
func (p *statusPage) server(s *protocol.Server) {
	if s == nil {
		return
	}
	words := []string{report.Plain(s.URL)}
	if s.Software != "" {
		words = append(words, report.Plain(s.Software))
	}
	words = append(words, "weights by "+report.Plain(s.Weights))
	if s.Versions != "" {
		words = append(words, "versions "+report.Plain(s.Versions))
	}
	if s.Cache != "" {
		words = append(words, "old cache: "+report.Plain(s.Cache))
	}
	if s.Retries > 0 || s.Losses > 0 {
		words = append(words, report.Counted(s.Retries, "broken response")+" gone on with", "lost "+report.Counted(s.Losses, "time"))
	}
	if s.Disagreements > 0 {
		words = append(words, report.Counted(s.Disagreements, "token")+" of another version than its switches say")
	}
	p.line("", "at %s", strings.Join(words, " · "))
	for _, c := range s.Channels {
		p.line("", "%s", channelText(c))
	}
	if s.Cause != "" {
		p.line("", "%s: %s", p.loud(report.Plain(s.State)), report.Plain(s.Cause))
	}
	for _, m := range s.Missing {
		p.line("", "%s%s", report.Plain(m.What), flagText(m))
	}
}

// channelText says what has become of a side channel.
func channelText(c protocol.ServerChannel) string {
	words := []string{report.Plain(c.Name) + " of " + report.Counted(c.Answers, "answer")}
	for _, why := range slices.Sorted(maps.Keys(c.Dropped)) {
		words = append(words, fmt.Sprintf("%d dropped: %s", c.Dropped[why], report.Plain(why)))
	}
	if c.Unstarted > 0 {
		words = append(words, report.Counted(c.Unstarted, "answer")+" from the first row on, whichever was asked for")
	}
	return strings.Join(words, " · ")
}

// flagText is how to start a server with what it lacks.
func flagText(m protocol.Missing) string {
	if m.Flag == "" {
		return ""
	}
	return " (start it with " + report.Plain(m.Flag) + ")"
}

// servedText name the version that an engine serves, or that there is none.
func servedText(v loop.Version) string {
	if v < 0 {
		return "no version"
	}
	return fmt.Sprintf("version %d", v)
}
