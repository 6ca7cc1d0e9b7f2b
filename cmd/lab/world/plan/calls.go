package plan

import (
	"slices"
	"strings"
)

// calls draws faults that come between two calls of a plane, to its broker or to engines, and faults that matter only
// together. Most worlds have none of them.
func (d drawer) calls(p *Plan) {
	if !d.chance(3) {
		return
	}
	all := []func(drawer, *Plan) bool{
		drawer.amid, drawer.amid, drawer.unstored, drawer.slowly, drawer.slowly, drawer.shared, drawer.shared, drawer.anew, drawer.anew, drawer.unheld, drawer.switches,
		drawer.unplaced, drawer.deposed, drawer.aborts, drawer.choices, drawer.ranges, drawer.damage, drawer.unkept, drawer.unkept,
	}
	d.calm(p)
	for !all[d.IntN(len(all))](d, p) { // one that is not about such a world
	}
}

// calm leaves only short faults of workers beside a story, in most of its worlds: it takes several things, one after
// another, and others would come between them.
func (d drawer) calm(p *Plan) {
	if p.Brokers > 0 || d.chance(4) {
		return
	}
	p.Trainer.StepMS, p.ThinkMS = d.of(200, 500), min(p.ThinkMS, 50)
	if strings.Contains(p.Rules.Queue, "drop") {
		p.ThinkMS = 50
	}
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool {
		return f.ForMS > 1000 || f.Await.By != "" || !strings.HasPrefix(f.Host, "worker")
	})
	kinds := map[string]bool{}
	for _, f := range p.Faults {
		kinds[f.Kind] = true
	}
	for len(p.Faults) < FaultsCounted || len(kinds) < KindsCounted {
		kind := []string{Reset, Mute, Double, Clock, Freeze}[d.IntN(5)]
		f := Fault{Kind: kind, Host: d.one(p.hosts(), "worker"), AtMS: d.soon(p), ForMS: int64(d.of(50, 300))}
		if kind == Clock {
			f.ForMS, f.ByMS = 0, int64(d.of(-5000, 5000))
		}
		kinds[kind] = true
		p.Faults = append(p.Faults, f)
	}
}

// soon is a time at which a run is under way, and not near its end.
func (d drawer) soon(p *Plan) int64 { return int64(d.between(1500, 1500+p.span()/2)) }

// messages are what a plane sends its broker. Between two of them lies what must not be lost.
var messages = []string{
	"STREAM.PURGE.headway_world_log", "STREAM.PURGE.headway_world_log", "STREAM.PURGE.headway_world_snapshots", "headway.world.snapshot",
	"headway.world.log", "headway.world.payload", "$KV.headway_world_writer",
}

// amid ends a plane, or takes its broker away and then ends it, as it sends a message.
func (d drawer) amid(p *Plan) bool {
	hosts := p.hosts()
	if len(hosts["broker"]) == 0 {
		return false
	}
	message := messages[d.IntN(len(messages))]
	if strings.Contains(message, "PURGE") || strings.Contains(message, "snapshot") {
		p.Store.SnapshotEvery = d.of(1, 1, 2)
		p.Store.NoTrace = true // else the lines are on the plane's disk as well
	}
	for range d.between(1, 3) {
		at, n, later, broker, way := d.soon(p), uint64(d.of(1, 1, 2, 3)), int64(d.of(50, 300, 1000)), d.one(hosts, "broker"), d.IntN(6)
		for _, plane := range hosts["plane"] { // one of them writes
			f := Fault{AtMS: at, Kind: Kill, Host: plane, ForMS: int64(d.of(50, 50, 300, 3000)), N: uint64(d.of(1, 1, 3, 10)), Await: Await{By: plane, Sends: message, N: n}}
			switch way {
			case 0:
				f.Host = broker
			case 1, 2: // what is on its way is lost
				cut := Fault{AtMS: at, Kind: Cut, Host: plane, Other: broker, Both: true, ForMS: int64(d.of(1000, 3000)), Await: f.Await}
				reset := Fault{AtMS: at, Kind: Reset, Host: plane, Other: broker, Await: f.Await}
				reset.Await.LaterMS, f.Await.LaterMS = cut.ForMS, later
				p.Faults = append(p.Faults, cut, reset)
			}
			p.Faults = append(p.Faults, f)
		}
	}
	return true
}

// unstored takes the broker away for longer than a plane waits for its answer, as a payload is on its way. The payload is
// lost, and the plane ends as it goes on with its log.
func (d drawer) unstored(p *Plan) bool {
	hosts := p.hosts()
	if len(hosts["broker"]) != 1 {
		return false
	}
	if p.Rules.GroupSize == 1 { // others of the group are still played
		p.Rules.GroupSize, p.Rules.Batch = 2, 2*p.Rules.Batch
	}
	at, lasts, n, cut := d.soon(p), int64(d.of(5500, 6000, 7000)), uint64(d.of(1, 2, 3, 5)), d.chance(2)
	begins := Await{By: "plane", Sends: "headway.world.payload", N: n}
	ends := begins
	ends.LaterMS = lasts - 10
	if !cut {
		p.Faults = append(p.Faults, Fault{Kind: Freeze, Host: "broker", AtMS: at, ForMS: lasts, Await: begins},
			Fault{Kind: Kill, Host: "broker", AtMS: at, ForMS: 50, N: 1, Await: ends})
	}
	for _, plane := range hosts["plane"] { // one of them writes
		begins.By, ends.By = plane, plane
		if cut {
			p.Faults = append(p.Faults, Fault{Kind: Reset, Host: plane, Other: "broker", AtMS: at, Await: ends},
				Fault{Kind: Cut, Host: plane, Other: "broker", Both: true, AtMS: at, ForMS: lasts, Await: begins})
		}
		p.Faults = append(p.Faults, Fault{
			Kind: Kill, Host: plane, AtMS: at + lasts + 300, ForMS: 50, N: uint64(d.of(1, 1, 3, 10)),
			Await: Await{By: plane, Sends: "headway.world.log", N: uint64(d.of(1, 1, 2, 3)), LaterMS: int64(d.of(0, 1, 5, 20))},
		})
	}
	return true
}

// slowly has a plane begin anew in the middle of a train step, while the way to its broker is slow. Its trainer asks before
// it has read everything.
func (d drawer) slowly(p *Plan) bool {
	hosts := p.hosts()
	if len(hosts["broker"]) == 0 {
		return false
	}
	p.Rules.LeaseMS, p.Trainer.StepMS = 2000, d.of(1000, 1500, 2500)
	for i, at := range []int64{2000, 17_000, 32_000} {
		times, event := uint64(d.of(100, 300, 300)), Await{By: "trainer", Hears: "batches lease", N: uint64(i + 1), LaterMS: int64(d.of(0, 100, 300, 600))}
		for _, plane := range hosts["plane"] { // one of them writes
			p.Faults = append(p.Faults, Fault{AtMS: at, Kind: Kill, Host: plane, ForMS: 50, N: 1, Await: event})
			for _, broker := range hosts["broker"] {
				p.Faults = append(p.Faults, Fault{AtMS: at, Kind: Slow, Host: plane, Other: broker, Both: true, ForMS: 12_000, N: times, Await: event})
			}
		}
	}
	return true
}

// shared has payloads of several groups share messages, and ends a plane as it gives some of them up.
func (d drawer) shared(p *Plan) bool {
	hosts := p.hosts()
	if len(hosts["broker"]) == 0 || p.Chat != nil || p.Trainer.Ranks > 1 {
		return false
	}
	p.Store.PayloadBytesMax, p.Store.Prompt = 1<<20, d.of(800, 1200, 2400)
	p.Rules.GroupSize = d.of(1, 1, 2)
	p.Rules.Batch = p.Rules.GroupSize * d.between(1, 3)
	for _, plane := range hosts["plane"] {
		f := Fault{AtMS: 1000, Kind: Slow, Host: plane, Other: hosts["broker"][0], Both: true, ForMS: 20_000, N: uint64(d.of(30, 100, 300))}
		if d.chance(2) {
			f = Fault{AtMS: 1000, Kind: Drag, Host: hosts["broker"][0], ForMS: 20_000, N: uint64(d.of(5, 20))}
		}
		p.Faults = append(p.Faults, f)
	}
	for range 5 {
		plane := d.one(hosts, "plane")
		p.Faults = append(p.Faults, Fault{
			AtMS: d.soon(p), Kind: Kill, Host: plane, ForMS: 50, N: uint64(d.of(1, 1, 3, 10)),
			Await: Await{By: plane, Sends: "STREAM.PURGE.headway_world_payload", N: uint64(d.of(1, 1, 2)), LaterMS: int64(d.of(0, 5, 20, 100))},
		})
	}
	return true
}

// silent has engines say nothing of the weights that sampled a token, so that planes derive it.
func (p *Plan) silent() {
	for i := range p.Engines {
		p.Engines[i].Spans = false
	}
	p.Rows = false
}

// ask is the event in which a plane asks an engine for tokens.
func (d drawer) ask() Await {
	return Await{By: "plane", Sends: "POST /v1/completions", N: uint64(d.of(1, 1, 2, 5)), LaterMS: int64(d.of(0, 1, 5, 20, 50))}
}

// anew has a plane begin anew, which does not know what engines were told before, and then engines: in the middle of
// responses, or while they have none.
func (d drawer) anew(p *Plan) bool {
	p.silent()
	hosts := p.hosts()
	p.Faults = append(p.Faults, Fault{AtMS: int64(d.between(1500, 4000)), Kind: Kill, Host: d.one(hosts, "plane"), ForMS: 50, N: 1})
	for range 4 {
		f := Fault{AtMS: d.soon(p), Kind: Kill, Host: d.one(hosts, "engine"), ForMS: int64(d.of(10, 50)), N: uint64(d.of(1, 1, 3, 10)), Await: d.ask()}
		if d.chance(2) {
			f.Await = Await{By: "trainer", Hears: []string{"weights", "batches lease"}[d.IntN(2)], N: 1, LaterMS: int64(d.of(0, 20, 100, 300))}
		}
		p.Faults = append(p.Faults, f)
	}
	return true
}

// unheld has receivers begin anew when they have loaded a version, while another one loads it slowly.
func (d drawer) unheld(p *Plan) bool {
	if len(p.Engines) < 2 {
		p.Engines = append(p.Engines, p.Engines[0])
	}
	p.Receivers = max(p.Receivers, 2)
	p.slowReceiver(d.of(200, 400, 600, 1000))
	for range 4 {
		p.Faults = append(p.Faults, Fault{
			AtMS: d.soon(p), Kind: Kill, Host: "receiver1", ForMS: int64(d.of(1, 10, 50)), N: 1,
			Await: Await{By: "receiver1", Asks: "receivers loaded", N: 1, LaterMS: int64(d.of(0, 1, 20, 100, 300))},
		})
	}
	return true
}

// switches has responses be under way while weights are switched. Single tokens come late, or a call of the switch is lost
// on a slow link.
func (d drawer) switches(p *Plan) bool {
	p.silent()
	hosts := p.hosts()
	for i := range p.Engines {
		p.Engines[i].TokenUS = d.of(3000, 10_000, 30_000)
	}
	late, path, span := d.chance(2), "/pause", int64(p.span())
	if d.chance(3) {
		path = switching[d.IntN(len(switching))]
	}
	for _, engine := range hosts["engine"] {
		one, slow := uint64(d.of(4, 8, 16)), uint64(d.of(10, 30, 100))
		for _, plane := range hosts["plane"] {
			if late {
				p.Faults = append(p.Faults, Fault{AtMS: 1000, Kind: Lag, Host: engine, Other: plane, ForMS: span, N: one})
				continue
			}
			p.Faults = append(p.Faults, Fault{AtMS: 1000, Kind: Slow, Host: engine, Other: plane, Both: true, ForMS: span, N: slow},
				Fault{AtMS: d.soon(p), Kind: Drop, Host: plane, Other: engine, Path: path, ForMS: 3000, N: uint64(d.of(1, 2))})
		}
	}
	return true
}

// unplaced has a plane's disk be full in the middle of a publish, which takes its time. In one world of two the trainer
// ends before it could publish again.
func (d drawer) unplaced(p *Plan) bool {
	p.Trainer.StepMS, p.ThinkMS = d.of(50, 200), 0
	ends := d.chance(2)
	for _, plane := range p.hosts()["plane"] {
		d.drag(p, plane, 3)
		for range 3 {
			file := []string{"/model.safetensors", "/optimizer.safetensors", "/optimizer.safetensors", "/manifest.json"}[d.IntN(4)]
			full := Fault{AtMS: d.soon(p), Kind: Full, Host: plane, ForMS: int64(d.of(50, 300)), Await: Await{By: plane, Writes: file, N: uint64(d.of(1, 2))}}
			p.Faults = append(p.Faults, full)
			if ends {
				kill := Fault{AtMS: full.AtMS, Kind: Kill, Host: "trainer", ForMS: int64(d.of(50, 300)), N: 1, Await: full.Await}
				kill.Await.LaterMS = int64(d.of(0, 5, 20, 50))
				p.Faults = append(p.Faults, kill)
			}
		}
	}
	return true
}

// deposed has a writer pause in the middle of a publish, for so long that another process takes its place.
func (d drawer) deposed(p *Plan) bool {
	if p.Planes < 2 {
		return false
	}
	p.Trainer.StepMS = d.of(50, 200)
	for _, plane := range p.hosts()["plane"] {
		d.drag(p, plane, 3)
		for range 2 {
			file := []string{"/config.json", "/model.safetensors", "/optimizer.safetensors", "/manifest.json"}[d.IntN(4)]
			p.Faults = append(p.Faults, Fault{AtMS: d.soon(p), Kind: Freeze, Host: plane, ForMS: int64(2*p.Rules.WriterMS + d.of(500, 2000)), Await: Await{By: plane, Writes: file, N: uint64(d.of(1, 2))}})
		}
	}
	return true
}

// aborts has engines end responses that have begun.
func (d drawer) aborts(p *Plan) bool {
	for i := range p.Engines {
		p.Engines[i].TokenUS = max(p.Engines[i].TokenUS, 3000)
	}
	for range 4 {
		event := d.ask()
		if d.chance(2) {
			event.Sends = "POST /inference/v1/generate"
		}
		p.Faults = append(p.Faults, Fault{AtMS: d.soon(p), Kind: Abort, Host: d.one(p.hosts(), "engine"), Await: event})
	}
	return true
}

// choices takes all engines away behind the first of several choices.
func (d drawer) choices(p *Plan) bool {
	if p.Chat == nil || p.Chat.Choices < 2 {
		return false
	}
	p.Chat.WaitMS = 500
	for range 3 {
		at, event := d.soon(p), d.ask()
		event.LaterMS = int64(p.Engines[0].TokenUS * d.between(0, 24) / 1000)
		for _, engine := range p.hosts()["engine"] {
			p.Faults = append(p.Faults, Fault{AtMS: at, Kind: Kill, Host: engine, ForMS: 3000, N: 1, Await: event})
		}
	}
	return true
}

// ranges has downloads break off in the middle, by a trainer that begins anew.
func (d drawer) ranges(p *Plan) bool {
	p.Trainer.Window, p.Trainer.Floats = 512, 1024
	for range 3 {
		at := d.soon(p)
		p.Faults = append(p.Faults,
			Fault{AtMS: at, Kind: Kill, Host: "trainer", ForMS: 50, N: 1},
			Fault{AtMS: at, Kind: Reset, Host: "trainer", Await: Await{By: "trainer", Asks: "weights files", N: 1, LaterMS: int64(d.of(0, 1, 1, 2))}})
	}
	return true
}

// unkept has a plane's disk be full in the middle of chats, for longer than the plane goes between two looks at it. The plane
// begins anew before there is room again, or just after.
func (d drawer) unkept(p *Plan) bool {
	if !p.Embedded || p.Store.PayloadBytesMax > 0 || p.Rows || p.Chat != nil && p.Chat.Players > 0 {
		return false
	}
	if p.Chat == nil {
		p.Chat = &Chat{Choices: 1, WaitMS: d.of(500, 1000)}
	}
	p.Chat.Turns = max(p.Chat.Turns, 3)
	for range 3 {
		at, lasts := d.soon(p), d.of(1500, 2000, 3000)
		event := Await{By: "worker", Hears: "v1 completions", N: uint64(d.of(1, 2, 3))}
		full := Fault{AtMS: at, Kind: Full, Host: d.one(p.hosts(), "plane"), ForMS: int64(lasts), Await: event}
		event.LaterMS = int64(d.of(lasts/2, lasts-300, lasts+100))
		p.Faults = append(p.Faults, full, Fault{AtMS: at, Kind: Kill, Host: full.Host, ForMS: 50, N: uint64(d.of(1, 1, 10)), Await: event})
	}
	return true
}

// damage flips a bit of a snapshot, and the plane begins anew before it has written another one.
func (d drawer) damage(p *Plan) bool {
	p.Store.SnapshotEvery = d.of(1, 2, 5)
	broker := d.one(p.hosts(), "broker")
	if broker == "" {
		return false
	}
	p.Store.NoTrace = p.Store.NoTrace || d.chance(2)
	for range d.between(1, 2) {
		at, lasts := d.soon(p), int64(d.of(50, 300))
		p.Faults = append(p.Faults,
			Fault{AtMS: at, Kind: Flip, Host: broker, ForMS: lasts, N: 1, Path: snapshotStreams},
			Fault{AtMS: at + int64(d.of(0, 10, 300)), Kind: Kill, Host: d.one(p.hosts(), "plane"), ForMS: int64(d.of(50, 300)), N: 1})
	}
	return true
}

// unsynced ends the broker as its disk syncs a message, which it shows when it begins anew, and then takes its power away. The
// process that reads the message, or has sent it, may begin anew as well. One world in twelve that could has it, and one in three
// with cells.
func (d drawer) unsynced(p *Plan) {
	hosts := p.hosts()
	cells, odds := hosts["cell"], 12
	if len(cells) > 0 {
		odds = 3
	}
	if p.Embedded || len(hosts["broker"]) != 1 || !d.chance(odds) {
		return
	}
	p.Durable = true
	d.calm(p)
	broker := hosts["broker"][0]
	p.Faults = append(p.Faults, Fault{AtMS: 500, Kind: Drag, Host: broker, ForMS: int64(p.span()), N: 20})
	streams := []string{"_log/"}
	if len(cells) > 0 {
		streams = []string{"_log/", "_log/", "_payload/", "_turns/", "_turns/"}
	}
	for range 3 {
		f := Fault{AtMS: d.soon(p), Kind: Kill, Host: broker, ForMS: 50, N: 1}
		f.Await = Await{By: broker, Writes: streams[d.IntN(len(streams))], N: uint64(d.between(1, 12)), LaterMS: int64(d.of(25, 25, 30))}
		dark := f
		dark.Kind, dark.ForMS, dark.N, dark.Await.N, dark.Await.LaterMS = Power, 300, 0, f.Await.N+1, 0
		p.Faults = append(p.Faults, f, dark)
		also := f
		switch also.ForMS = 300; {
		case f.Await.Writes == "_turns/", len(cells) > 0 && d.chance(4): // it reads what it has told
			also.Host, also.Await = d.one(hosts, "cell"), dark.Await
		case d.chance(2): // nobody has the line synced
			also.Host = d.one(hosts, "plane")
		default:
			continue
		}
		p.Faults = append(p.Faults, also)
	}
}

// midChat has planes and cells begin anew between turns of chats, whose answers have rows. One world in sixteen that could has it.
func (d drawer) midChat(p *Plan) {
	if p.Store.PayloadBytesMax > 0 || p.Store.Prompt > 0 || p.dropsLong() || !d.chance(16) {
		return
	}
	hosts := p.hosts()
	d.calm(p)
	p.rows()
	if p.Chat == nil {
		p.Chat = &Chat{Choices: 1, WaitMS: d.of(500, 1000)}
	}
	p.Chat.Turns = 3
	for range 3 {
		f := Fault{Kind: Kill, AtMS: d.soon(p), ForMS: int64(d.of(50, 300)), N: 1}
		f.Await = Await{By: "worker", Hears: "v1 completions", N: uint64(d.of(1, 2, 3)), LaterMS: int64(d.of(0, 1, 5))}
		for _, f.Host = range append(slices.Clone(hosts["plane"]), hosts["cell"]...) {
			p.Faults = append(p.Faults, f)
		}
	}
}

// takenOver has a writer stand still, or be cut off, in a publish and in the middle of slow responses. The next writer has engines take
// the version, and ends when the first is back, which then reads what it has put meanwhile. One world in twelve that could has it.
func (d drawer) takenOver(p *Plan) {
	if p.Planes < 2 || p.Brokers > 0 || !d.chance(12) {
		return
	}
	d.calm(p)
	p.silent()
	p.Rules.WriterMS, p.Trainer.StepMS = 1000, d.of(20, 100, 300)
	for i := range p.Engines {
		p.Engines[i].TokenUS = d.of(100_000, 150_000, 200_000)
	}
	hosts := p.hosts()
	for i := range 5 {
		at, first := int64(2000+12_000*i), d.IntN(2)
		away := Fault{Kind: Freeze, Host: hosts["plane"][first], AtMS: at, ForMS: int64(d.of(2000, 3000, 4000))}
		away.Await = Await{By: away.Host, Writes: "/weights/", N: 1, LaterMS: int64(d.of(0, 5, 20))}
		if d.chance(2) {
			away.Kind, away.Other, away.Both = Cut, "broker", true
		}
		next := Fault{Kind: Kill, Host: hosts["plane"][1-first], AtMS: at, ForMS: 3000, N: uint64(d.of(1, 10)), Await: away.Await}
		next.Await.LaterMS += away.ForMS + int64(d.of(100, 300, 1000))
		p.Faults = append(p.Faults, away, next)
	}
}
