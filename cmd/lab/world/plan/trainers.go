package plan

import (
	"fmt"
	"strings"
)

// trainers draws what a trainer does beside training: ranks, steps without weights, batches that it hands back, narrow
// connections. Planes are stopped in order, and faults come in the middle of calls.
func (d drawer) trainers(p *Plan) {
	if d.chance(6) {
		d.ranks(p)
	}
	if d.chance(6) {
		d.acks(p)
	}
	if d.chance(8) {
		p.Trainer.Back = d.of(1, 2, 5)
	}
	if d.chance(6) {
		p.Trainer.Window, p.Trainer.Floats = d.of(512, 2048), d.of(64, 1024)
	}
	if d.chance(6) {
		for range d.between(1, 2) {
			d.add(p, Fault{Kind: Stop, Host: d.one(p.hosts(), "plane"), ForMS: int64(d.of(50, 1000, 3000))})
		}
	}
	if d.chance(8) {
		d.loads(p)
	}
	if d.chance(8) {
		p.Rules.Redundancy = d.between(1, 2)
	}
	if d.chance(8) { // a plane's disk takes its time for each write, so that calls meet in the middle of one
		for _, plane := range p.hosts()["plane"] {
			d.drag(p, plane, 2)
		}
		d.add(p, Fault{Kind: Double, Host: "trainer", ForMS: 3000})
	}
	if d.chance(3) {
		for range d.between(1, 3) {
			d.story(p)
		}
	}
}

// loads has several versions be on their way to engines at once, and groups sampled by engines of different versions.
func (d drawer) loads(p *Plan) {
	for len(p.Engines) < 3 {
		p.Engines = append(p.Engines, p.Engines[0])
	}
	for i := range p.Engines {
		p.Engines[i].LoadMS, p.Engines[i].Slots = d.of(0, 20, 100, 300), d.between(1, 3)
	}
	p.Rules.GroupSize = 4
	if p.Trainer.Ranks < 2 {
		p.Rules.Batch = 4 * d.between(1, 2)
	}
	p.Rules.Batch = (p.Rules.Batch + 3) / 4 * 4
	if d.chance(2) && strings.Contains(p.Rules.Sync, "in_flight") && !strings.Contains(p.Rules.Sync, "rolling") {
		p.Rules.Sync += ", switch: rolling"
	}
	if d.chance(2) { // an engine whose receiver lags behind goes on with the version before, beside the others
		p.Receivers = max(p.Receivers, d.between(1, 2))
		p.slowReceiver(d.of(200, 400, 600))
		for i := 1; i < p.Receivers; i++ { // one that has loaded waits for the others
			d.add(p, Fault{Kind: Kill, Host: fmt.Sprint("receiver", i), Await: Await{By: "receiver", Asks: "receivers loaded", LaterMS: int64(d.IntN(100))}, ForMS: 50, N: 1})
		}
	}
}

// slowReceiver has the first receiver lag behind all along: its link to planes is so many times as slow.
func (p *Plan) slowReceiver(times int) {
	for _, plane := range p.hosts()["plane"] {
		p.Faults = append(p.Faults, Fault{AtMS: 1000, Kind: Slow, Host: plane, Other: "receiver0", Both: true, N: uint64(times), ForMS: int64(p.span())})
	}
}

// drag has a plane's disk be slow all along, by so many milliseconds a write at most.
func (d drawer) drag(p *Plan, plane string, most int) {
	p.Faults = append(p.Faults, Fault{AtMS: 1000, Kind: Drag, Host: plane, ForMS: int64(p.span()), N: uint64(d.between(1, most))})
}

// acks has the trainer publish only the versions that engines take, and begin anew between them.
func (d drawer) acks(p *Plan) {
	p.Trainer.Acks = true
	before, after, _ := strings.Cut(p.Rules.Sync, "every: ")
	every := d.of(2, 2, 3)
	if strings.Contains(p.Rules.Queue, "eta: 1") { // with more the trainer would starve: the document is refused
		every = 2
	}
	p.Rules.Sync = fmt.Sprintf("%severy: %d%s", before, every, after[1:])
	for range d.between(1, 3) { // a trainer that begins anew goes on from a version that has weights
		d.add(p, Fault{Kind: Kill, Host: "trainer", ForMS: int64(d.of(50, 1000)), N: uint64(d.between(1, 300))})
	}
}

// ranks has several hosts train, and faults come over them.
func (d drawer) ranks(p *Plan) {
	p.Trainer.Ranks = d.of(2, 2, 3)
	p.Rules.GroupSize = min(p.Rules.GroupSize, 2)
	p.Rules.Batch = p.Rules.GroupSize * d.between(p.Trainer.Ranks-1, p.Trainer.Ranks+1)
	hosts := map[string][]string{"plane": p.hosts()["plane"], "trainer": p.hosts()["trainer"][1:]}
	if d.chance(3) { // shares that do not fit
		p.Trainer.Window = 512
		p.Rules.GroupSize, p.Rules.Batch = 4, 4*p.Trainer.Ranks
	}
	for range d.between(1, 3) {
		f, ok := d.fault(hosts)
		for !ok || !strings.HasPrefix(f.Host, "trainer") {
			f, ok = d.fault(hosts)
		}
		d.add(p, f)
	}
}

// add adds a fault at a time of the run.
func (d drawer) add(p *Plan, f Fault) {
	f.AtMS = d.when(p)
	p.Faults = append(p.Faults, f)
}

// moment is a fault that comes in the middle of a call.
type moment struct {
	by, call, kind, role string
	later                int // at most, in milliseconds
}

// stories are faults that matter most in the middle of calls, and those that matter together.
var stories = [][]moment{
	{{"trainer", "weights", Kill, "plane", 0}},
	{{"trainer", "weights", Kill, "broker", 1}},
	{{"trainer", "weights", Kill, "trainer", 1}},
	{{"trainer", "weights", Full, "plane", 1}},
	{{"trainer", "weights", Mute, "trainer", 0}, {"trainer", "weights", Kill, "plane", 30}},    // an answer is lost, and who gave it
	{{"trainer", "weights", Cut, "broker", 0}, {"trainer", "batches lease", Kill, "plane", 0}}, // an answer, and not written down what it says
	{{"trainer", "weights", Drag, "plane", 0}, {"trainer", "weights", Double, "trainer", 0}},   // two publishes side by side
	{{"trainer", "weights files", Reset, "trainer", 2}, {"", "", Kill, "trainer", 0}},          // only a trainer that begins anew downloads
	{{"trainer", "weights files", Kill, "plane", 2}, {"", "", Kill, "trainer", 0}},
	{{"worker", "rollouts finish", Kill, "plane", 1}},
	{{"worker", "rollouts finish", Kill, "broker", 1}},
	{{"worker", "rollouts claim", Kill, "plane", 1}},
	{{"trainer", "batches lease", Kill, "plane", 1}},
	{{"trainer", "batches renew", Cut, "plane", 1}},
	{{"receiver", "receivers loaded", Kill, "receiver", 3}},
}

// story draws one, and has it happen a few times.
func (d drawer) story(p *Plan) {
	hosts := p.hosts()
	story := stories[d.IntN(len(stories))]
	for _, m := range story {
		if len(hosts[m.role]) == 0 {
			return
		}
		if m.call == "weights files" { // only a long file breaks off in its middle
			p.Trainer.Window, p.Trainer.Floats = 512, 1024
		}
	}
	for range d.between(1, 3) {
		at := d.when(p)
		for _, m := range story {
			f := Fault{
				AtMS: at, Kind: m.kind, Host: d.one(hosts, m.role), Both: m.kind == Cut, ForMS: int64(d.of(50, 300, 1000)), N: 1,
				Await: Await{By: m.by, Asks: m.call, LaterMS: int64(d.between(0, m.later))},
			}
			switch m.kind {
			case Kill:
				f.N = uint64(d.between(1, d.of(1, 10, 100)))
			case Drag:
				f.N = uint64(d.of(1, 2, 5))
			}
			p.Faults = append(p.Faults, f)
		}
	}
}
