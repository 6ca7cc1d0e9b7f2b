package main

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/observe/report"
)

// cellsMax is how many cells are listed; more are counted.
const cellsMax = 16

// limitMuch is the share of a bound from which on one more cell is advised.
const limitMuch = 0.8

// cells lists the cells in other processes, and says which bound of all binds first.
func (p *statusPage) cells(s protocol.Status) {
	for i, c := range s.Cells[:min(len(s.Cells), cellsMax)] {
		label := ""
		if i == 0 {
			label = "cells"
		}
		words := []string{report.Plain(c.Name), fmt.Sprintf("%s, %s", report.Counted(c.Engines, "engine"), report.Counted(c.Slots, "slot"))}
		switch {
		case c.Away:
			words = append(words, "away")
		case c.SilentS < 0:
			words = append(words, p.loud("not heard of yet"))
		case c.Bounds == nil:
			words = append(words, "heard "+shortSeconds(c.SilentS)+" ago")
		default:
			words = append(words, "heard "+shortSeconds(c.SilentS)+" ago", "takes "+fullestText(c.Bounds))
		}
		if c.Build != "" {
			words = append(words, report.Plain(c.Build))
		}
		p.line(label, "%s", strings.Join(words, " · "))
	}
	if more := len(s.Cells) - cellsMax; more > 0 {
		p.line("", "and %d more", more)
	}
	if len(s.Limits) > 0 {
		p.line("limits", "%s", limitText(s.Limits[0]))
	}
}

// fullestText names the bound of a process that is taken most.
func fullestText(bounds []protocol.Bound) string {
	share, name := -1.0, ""
	for _, b := range bounds {
		if taken := float64(b.Held) / float64(b.Max); b.Max > 0 && taken > share {
			share, name = taken, b.Name
		}
	}
	return fmt.Sprintf("%s of %s", report.Share(share), boundText(name))
}

// limitText says what binds first, and what one more cell would change.
func limitText(l protocol.Limit) string {
	process := "the control plane"
	if l.Fullest != "" {
		process = "cell " + report.Plain(l.Fullest)
	}
	return fmt.Sprintf("%s bind first: %s has taken %s. All %d processes have taken %s of %s, and one more cell adds %s", boundText(l.Name), process, report.Share(l.Share),
		l.Processes, amountText(l.Name, l.Held), amountText(l.Name, l.Max), amountText(l.Name, l.OneMore))
}

// boundText is the name of a bound for people.
func boundText(name string) string {
	switch name {
	case protocol.BoundProcessor:
		return "processors"
	case protocol.BoundRollouts:
		return "bytes of rollouts"
	case "bodies_bytes":
		return "bytes of requests"
	}
	return report.Plain(name)
}

// amountText is an amount of a bound for people.
func amountText(name string, n int64) string {
	switch {
	case name == protocol.BoundProcessor:
		return report.Figure(float64(n)/1000, 1)
	case strings.HasSuffix(name, "_bytes"):
		return report.Bytes(n)
	}
	return report.Count(n)
}
