package plan

import (
	"slices"
	"strings"
)

// rollouts draws how rollouts are played and sampled, beside everything else: agents that chat, slow engines, links that
// lose single writes, and engines that end responses or lie. Most worlds have none of it.
func (d drawer) rollouts(p *Plan) {
	if d.chance(6) {
		p.Chat = &Chat{Turns: d.between(1, 3), Choices: d.of(1, 1, 2, 3), Stream: d.chance(2), WaitMS: d.of(500, 1000, 3000)}
		if d.chance(2) {
			p.Chat.LeaveMS = d.of(30, 100, 300)
		}
		if d.chance(3) {
			p.Chat.Players = d.between(1, 4)
		}
	}
	if d.chance(8) { // a response takes longer than a claim lasts, or about as long
		for i := range p.Engines {
			p.Engines[i].TokenUS = d.of(50_000, 100_000, 150_000)
		}
		p.Rules.ClaimMS = 2000
	}
	if d.chance(8) {
		for range d.between(2, 4) {
			d.writes(p)
		}
	}
	if d.chance(6) {
		for range d.between(1, 3) {
			p.Faults = append(p.Faults, Fault{Kind: Abort, Host: d.one(p.hosts(), "engine"), AtMS: d.when(p)})
		}
	}
	if p.Planes == 1 && d.chance(3) { // the standby of a writer could not know what an engine computed before
		for range d.between(1, 2) {
			p.Faults = append(p.Faults, Fault{Kind: Deaf, Host: d.one(p.hosts(), "engine"), AtMS: d.when(p), ForMS: int64(d.of(300, 1000, 3000))})
		}
	}
	p.Rows = d.chance(2)
	for _, e := range p.Engines {
		p.Rows = p.Rows && e.Spans
	}
	if p.Receivers > 0 && d.chance(3) {
		d.pause(p)
	}
	if p.Chat != nil && p.Chat.Choices > 1 { // an engine stands still behind the first of several choices
		for range d.between(0, 2) {
			p.Faults = append(p.Faults, Fault{Kind: Freeze, Host: d.one(p.hosts(), "engine"), AtMS: d.when(p), ForMS: int64(d.of(1000, 3000))})
		}
	}
	if d.chance(7) { // a switch of weights loses one of its calls, whichever plane makes it
		f := Fault{Kind: Drop, Other: d.one(p.hosts(), "engine"), Path: switching[d.IntN(len(switching))], AtMS: d.when(p), ForMS: int64(d.of(1000, 3000)), N: uint64(d.of(1, 2))}
		for _, f.Host = range p.hosts()["plane"] {
			p.Faults = append(p.Faults, f)
		}
	}
}

// rows has all engines bring rows, which say which weights sampled what.
func (p *Plan) rows() {
	p.Rows = true
	for i := range p.Engines {
		p.Engines[i].Spans = true
	}
}

// pause has the trainer stand still for long once the planes and the broker are let alone. A receiver begins anew
// meanwhile, so that its stage serves nothing and no version comes.
func (d drawer) pause(p *Plan) {
	quiet := int64(1500)
	for _, f := range p.Faults {
		link := slices.Contains([]string{Cut, Slow, Reset, Drop, Lag}, f.Kind)
		if f.Host == "broker" || strings.HasPrefix(f.Host, "plane") || link && (f.Other == "" || strings.HasPrefix(f.Other, "plane")) {
			quiet = max(quiet, f.AtMS+f.ForMS)
		}
	}
	host := d.one(p.hosts(), "receiver")
	p.Faults = append(p.Faults, Fault{Kind: Freeze, Host: "trainer", AtMS: quiet, ForMS: 22_000},
		Fault{Kind: Kill, Host: host, AtMS: quiet + 15_000, ForMS: int64(d.of(50, 300)), N: 1})
}

// when is a time at which the run is likely to be under way.
func (d drawer) when(p *Plan) int64 { return int64(d.between(1500, p.span())) }

// switching are the calls of a switch of weights, toEngines all that a plane makes to an engine.
var (
	switching = []string{"/pause", "/resume", "/collective_rpc", "/update_weight_version", "/weight_info"}
	toEngines = append([]string{"generate", "/v1/completions"}, switching...)
)

// ways are the directions in which writes are lost or late, with parts of the requests that are sent there.
var ways = []struct {
	from, to string
	paths    []string
}{
	{"plane", "engine", toEngines}, {"plane", "engine", toEngines}, {"plane", "engine", toEngines},
	{"engine", "plane", []string{""}},
	{"worker", "plane", []string{"/claim", "/sample", "/touch", "/finish", "/v1/"}},
	{"plane", "worker", []string{""}},
	{"trainer", "plane", []string{"/lease", "/renew", "/weights", "/ack"}},
	{"plane", "trainer", []string{""}},
}

// writes draws a link whose single writes are lost or late: all, or those of one kind of request.
func (d drawer) writes(p *Plan) {
	way, hosts := ways[d.IntN(len(ways))], p.hosts()
	f := Fault{Kind: Drop, AtMS: d.when(p), ForMS: int64(d.of(300, 1000, 3000)), N: uint64(d.of(1, 2, 4, 16))}
	f.Host, f.Other = d.one(hosts, way.from), d.one(hosts, way.to)
	if d.chance(2) {
		f.Kind = Lag
	}
	if path := way.paths[d.IntN(len(way.paths))]; path != "" && !d.chance(4) {
		f.Path, f.N, f.ForMS = path, uint64(d.of(1, 2)), int64(d.of(1000, 3000, 6000))
	}
	p.Faults = append(p.Faults, f)
}

// environment has planes and cells play where each message is answered, in half of the worlds in which they play.
func (d drawer) environment(p *Plan) {
	if p.Chat == nil || p.Chat.Players == 0 || !d.chance(2) {
		return
	}
	p.Chat.Environment, p.Chat.Turns = true, max(p.Chat.Turns, d.between(2, 4))
}
