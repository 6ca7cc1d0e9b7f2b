package checker

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

const second = int64(1e9)

// graceLeast and graceMost bound the time for which claims and leases stand still after the plane could not write or answer.
const graceLeast, graceMost = 3 * second, 10 * second

// blind is how long a plane may need to find out that it stood still. That it cannot write it knows by notice after its
// lease was to be renewed, which it is after a third of its time. So much of an outage may count.
const blind, notice = 2 * second, 3 * second / 2

// tick is how often a plane's clock of claims and leases takes note of refusals.
const tick = second / 4

// span is a time of the world, in nanoseconds.
type span struct{ from, to int64 }

// clocks bring the log's time to the world's: for each segment of the log, the least and the greatest difference that
// its acknowledged events allow.
type clocks []span

// clocks reads the differences off the events that callers were told of.
func (c *check) clocks() clocks {
	out := make(clocks, len(c.log.recovered)+1)
	for i := range out {
		out[i] = span{math.MinInt64, math.MaxInt64}
	}
	for _, e := range c.acknowledged() {
		segment := c.log.segment(e.n)
		s := &out[segment]
		t := c.log.time(e.n)
		s.from = max(s.from, e.began-t)
		w, known := c.writers[segment]
		if e.what == "finish" || !c.stood(e) && (segment == 0 || known && w.to == e.to && !c.started(e.to, e.at, c.lines[w.line].AtNS)) {
			s.to = min(s.to, e.at-t) // else a process before may have answered, and its successor found the version later
		}
	}
	return out
}

// stood says whether the plane that answered a publish may have stood still before it took the version through its loop, which
// it does right after the answer.
func (c *check) stood(e logTime) bool {
	return slices.ContainsFunc(c.outages, func(o outage) bool {
		return o.host == e.to && (o.kind == "freeze" || o.kind == "drag") && o.from <= e.at+second && o.to >= e.began
	})
}

// started says whether a host was started after a time, and at another at the latest.
func (c *check) started(host string, after, at int64) bool {
	return slices.ContainsFunc(c.lines, func(l history.Line) bool {
		return l.Kind == "start" && l.Host == host && l.AtNS > after && l.AtNS <= at
	})
}

// latest is the latest time of the world at which an event can have been.
func (l *ledger) latest(k clocks, n int64) (int64, bool) {
	s := k[l.segment(n)]
	return l.time(n) + s.to, s.to != math.MaxInt64 && s.from <= s.to
}

// earliest is the earliest.
func (l *ledger) earliest(k clocks, n int64) (int64, bool) {
	s := k[l.segment(n)]
	return l.time(n) + s.from, s.from != math.MinInt64 && s.from <= s.to
}

// outage is a fault while it lasts.
type outage struct {
	span
	host, kind, other string
}

// outages are the faults of a history. Each lasts as long as its line says, or to the line that heals it: the first of its
// kind and host that is still open.
func outages(lines []history.Line) []outage {
	var out []outage
	last := int64(0)
	end := func(at int64, over func(o *outage) bool) {
		for i := range out {
			if o := &out[i]; o.to < 0 && over(o) {
				o.to = at
			}
		}
	}
	thaw := func(l *history.Line) { // a host that is to be killed goes on until it dies
		for i := range out {
			if o := &out[i]; o.host == l.Host && o.kind == "freeze" && (o.to < 0 || o.to > l.AtNS) {
				o.to = l.AtNS
			}
		}
	}
	for i := range lines {
		l := &lines[i]
		last = l.AtNS
		kind, rest, _ := strings.Cut(l.Text, " ")
		other, _, _ := strings.Cut(rest, " ")
		switch l.Kind {
		case "fault":
			if kills(kind) {
				thaw(l)
			}
			o := outage{span{l.AtNS, -1}, l.Host, kind, other}
			if ms, known := duration(l.Text); known && !kills(kind) {
				o.to = l.AtNS + ms*second/1000
			}
			out = append(out, o)
		case "dead":
			thaw(l)
			out = append(out, outage{span{l.AtNS, -1}, l.Host, "dead", kind})
		case "start": // it ends the fault that killed the host
			end(l.AtNS, func(o *outage) bool { return o.host == l.Host && (o.kind == "dead" || kills(o.kind)) })
		case "healed":
			done := false
			end(l.AtNS, func(o *outage) bool {
				one := o.host == l.Host && o.kind == kind && !done
				done = done || one
				return one || l.Host == "world"
			})
			if l.Host == "world" {
				for i := range out {
					out[i].to = min(out[i].to, l.AtNS)
				}
			}
		}
	}
	end(last, func(*outage) bool { return true })
	return out
}

// duration reads "for 300 ms" in the text of a fault.
func duration(text string) (ms int64, known bool) {
	_, rest, ok := strings.Cut(text, "for ")
	digits, _, ms1 := strings.Cut(rest, " ms")
	ms, err := strconv.ParseInt(digits, 10, 64)
	return ms, ok && ms1 && err == nil
}

// kills says whether a fault ends its host's program.
func kills(kind string) bool { return kind == "kill" || kind == "power" || kind == "flip" }

// settles is for how long a fault may have effects when it is over.
const settles = 11 * second

// keeps says whether an outage is of a host that keeps what rollouts have made, or of its way to the broker.
func (o *outage) keeps() bool {
	return slices.ContainsFunc([]string{"plane", "broker", "cell"}, func(role string) bool { return strings.HasPrefix(o.host, role) }) || strings.HasPrefix(o.other, "broker")
}

// undisturbed says whether no fault of whoever runs rollouts, or of a host that asks them, has effects at any time from one to
// another.
func (c *check) undisturbed(host string, from, to int64) bool {
	return !slices.ContainsFunc(c.outages, func(o outage) bool { return o.from <= to && o.to+settles >= from && (o.keeps() || o.host == host) })
}

// stops are the times in which a plane, and so the run that it writes, could not write or answer, with the grace after
// each, in order. A plane that only stands by may be frozen, and nothing stands still. Of a writer that nobody heard, it is
// not known. A writer that began in an outage, or after it, was away from then on alone: it gave claims and leases their
// whole time when it began.
func (c *check) stops(writer string, began int64) []span {
	out := c.minorities(began)
	// A plane with a broker inside it can write while it is cut off.
	inside := !slices.ContainsFunc(c.lines, func(l history.Line) bool { return l.Kind == "start" && strings.HasPrefix(l.Host, "broker") })
	for _, o := range c.outages {
		from := o.from
		switch {
		case o.clustered():
			continue
		case o.kind == "freeze" && o.host == writer:
			from += blind
		case strings.HasPrefix(o.host, "broker") && (o.kind == "freeze" || o.kind == "dead"), o.cuts(writer) && !inside:
			from += c.unwritable()
		default:
			continue
		}
		if from = max(from, began); from < o.to {
			out = append(out, span{from, o.to + min(o.to-from, graceMost)})
		}
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return out
}

// ofCell says whether a host is a cell, which answers for the rollouts that play on its engines.
func ofCell(host string) bool { return strings.HasPrefix(host, "cell") }

// frozen are the times in which a cell stood still, with the grace after each, in order: claims of its rollouts run on while
// planes and brokers are away.
func (c *check) frozen(cell string) (out []span) {
	for _, o := range c.outages {
		if o.kind == "freeze" && o.host == cell && o.from+blind < o.to {
			out = append(out, span{o.from + blind, o.to + min(o.to-o.from-blind, graceMost)})
		}
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return out
}

// clustered says whether an outage is of one of a cluster's servers, beside which the others may go on.
func (o *outage) clustered() bool {
	numbered := func(host string) bool { return len(host) > len("broker") && strings.HasPrefix(host, "broker") }
	return numbered(o.host) || numbered(o.other)
}

// unwritable is how much of an outage may count in which a plane could not write.
func (c *check) unwritable() int64 { return notice + int64(c.log.rules.writerS/3*float64(second)) }

// minorities are the times in which two of a cluster's three servers stood still, with the grace after each, for a writer
// that began at a time.
func (c *check) minorities(began int64) []span {
	var out []span
	stands := func(o *outage) bool { return o.clustered() && (o.kind == "freeze" || o.kind == "dead") }
	for i := range c.outages {
		for j := range c.outages[:i] {
			a, b := &c.outages[i], &c.outages[j]
			if !stands(a) || !stands(b) || a.host == b.host {
				continue
			}
			from, to := max(max(a.from, b.from)+c.unwritable(), began), min(a.to, b.to)
			if from < to {
				out = append(out, span{from, to + min(to-from, graceMost)})
			}
		}
	}
	return out
}

// cuts says whether an outage cuts a plane off from the broker.
func (o *outage) cuts(plane string) bool {
	switch {
	case o.kind != "cut" || plane == "":
		return false
	case strings.HasPrefix(o.host, "broker"):
		return o.other == "" || o.other == plane
	}
	return o.host == plane && (o.other == "" || strings.HasPrefix(o.other, "broker"))
}

// within is how much of the stops lies between two times.
func within(stops []span, from, to int64) int64 {
	sum, at := int64(0), from
	for _, s := range stops {
		a, b := max(s.from, at), min(s.to, to)
		if a < b {
			sum += b - a
			at = b
		}
	}
	return sum
}
