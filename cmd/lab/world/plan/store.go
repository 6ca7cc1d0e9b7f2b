package plan

import "slices"

// store draws how the planes keep what they have, and the faults that are aimed at it. It comes after all else and draws
// from a stream of its own, so that a seed keeps the rest of its world.
func (d drawer) store(p *Plan) {
	if d.chance(2) {
		p.Store.SnapshotEvery = d.of(1, 1, 2, 5)
	}
	if !p.Embedded && d.chance(5) {
		p.Store.NoTrace, p.Store.SnapshotEvery = true, d.of(1, 1, 2, 5)
	}
	if d.chance(8) && p.Chat == nil { // payloads make room for others
		p.Store.PayloadBytesMax, p.Store.Prompt = 1<<20, d.of(400, 800, 1200)
		if host := d.one(p.hosts(), []string{"plane", "broker"}[d.IntN(2)]); host != "" && d.chance(2) { // and share messages
			p.Faults = append(p.Faults, Fault{Kind: Drag, Host: host, AtMS: 1000, ForMS: 15_000, N: uint64(d.of(5, 20))})
		}
	}
	if !p.Embedded && d.chance(10) {
		d.cluster(p)
	}
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.ForMS > 20_000 }) {
		return // planes and brokers are to be let alone for long
	}
	if p.Planes > 1 && d.chance(4) {
		d.depose(p)
	}
	if p.Durable && d.chance(2) {
		f := Fault{Kind: Power, Host: d.one(p.hosts(), []string{"plane", "broker"}[d.IntN(2)]), AtMS: d.near(p), ForMS: int64(d.of(50, 300, 3000))}
		if f.Host != "" {
			f.Await = d.event(p.hosts())
			p.Faults = append(p.Faults, f)
		}
	}
	switch {
	case d.chance(6):
		d.outage(p)
	case d.chance(5), p.Store.NoTrace && d.chance(2):
		d.crash(p)
	case d.chance(2):
		d.storm(p)
	}
}

// near is about the time of one of the faults that are there.
func (d drawer) near(p *Plan) int64 { return p.Faults[d.IntN(len(p.Faults))].AtMS }

// depose takes the lease from a writer in the middle of a train step that takes about as long as the lease. The publish
// comes while another plane takes over: it begins after a cut, or the writer stands still in the middle of it.
func (d drawer) depose(p *Plan) {
	hosts := p.hosts()
	p.Trainer.StepMS = p.Rules.WriterMS * d.of(2, 3, 4, 5, 6) / 4
	at, lasts := p.Faults[0].AtMS, int64(p.Rules.WriterMS*d.of(2, 3, 4, 6)/2)
	if d.chance(2) {
		event := []Await{{By: "trainer", Asks: "weights"}, {By: "plane", Writes: "/weights/"}}[d.IntN(2)]
		event.N = uint64(d.of(1, 1, 2, 3))
		lasts = int64(2*p.Rules.WriterMS + d.of(0, 1, 1, 2)*p.Rules.LeaseMS) // the next writer may give the batch to another lease
		for _, host := range hosts["plane"] {                                // one of them writes
			p.Faults = append(p.Faults, Fault{Kind: Freeze, Host: host, AtMS: at, ForMS: lasts, Await: event})
			if d.chance(2) {
				break
			}
			at += 2 * lasts
		}
		return
	}
	host := d.one(hosts, "plane")
	event := Await{By: "trainer", Hears: "batches lease", N: 1, LaterMS: int64(d.of(0, 0, 100, 500))}
	for _, broker := range hosts["broker"] {
		p.Faults = append(p.Faults, Fault{Kind: Cut, Host: host, Other: broker, Both: true, AtMS: at, ForMS: lasts, Await: event})
	}
}

// crash has a disk, or a plane's link to its broker, be slow, and kills a program in the middle of what takes long then.
// What begins anew is as slow.
func (d drawer) crash(p *Plan) {
	hosts := p.hosts()
	plane, broker := d.one(hosts, "plane"), d.one(hosts, "broker")
	slow := Fault{Kind: Drag, Host: plane, AtMS: max(d.near(p)-1000, 0), ForMS: 10_000, N: uint64(d.of(1, 5, 20))}
	struck := plane
	switch {
	case broker == "":
	case d.chance(2):
		slow.Kind, slow.Other, slow.Both, slow.N = Slow, broker, true, uint64(d.of(100, 1000))
	case d.chance(2):
		slow.Host, struck = broker, []string{plane, broker}[d.IntN(2)]
	}
	kill := Fault{Kind: Kill, Host: struck, AtMS: slow.AtMS + int64(d.between(500, 6000)), ForMS: int64(d.of(50, 50, 300, 3000)), N: uint64(d.of(1, 1, 3, 10)), Await: d.event(hosts)}
	if later := int64(d.of(0, 0, 20, 300, 1000)); kill.Await.By != "" {
		kill.Await.LaterMS = later
	} else {
		kill.AtMS += later
	}
	p.Faults = append(p.Faults, slow, kill)
}

// outage takes the broker away from a plane for a while. What is under way when that ends is lost, and the plane is killed
// about then.
func (d drawer) outage(p *Plan) {
	hosts := p.hosts()
	plane, broker := d.one(hosts, "plane"), d.one(hosts, "broker")
	if broker == "" {
		return
	}
	at, lasts := d.near(p), int64(d.of(1000, 3000, 6000, 6000, 15_000))
	away := Fault{Kind: []string{Freeze, Freeze, Kill}[d.IntN(3)], Host: broker, AtMS: at, ForMS: lasts, Await: d.event(hosts)}
	lost := Fault{Kind: Kill, Host: broker, AtMS: at, ForMS: int64(d.of(50, 300, 1000)), N: uint64(d.of(1, 1, 3))}
	if d.chance(3) {
		away = Fault{Kind: Cut, Host: plane, Other: broker, Both: true, AtMS: at, ForMS: lasts, Await: away.Await}
		lost = Fault{Kind: Reset, Host: plane, Other: broker, AtMS: at}
	}
	if away.Kind == Kill {
		away.N = 1
	}
	lost.Await = away.Await
	lost.Await.LaterMS = lasts - int64(d.of(0, 10, 300))
	crash := Fault{Kind: Kill, Host: plane, AtMS: at, ForMS: int64(d.of(50, 300, 3000)), N: uint64(d.of(1, 10, 100)), Await: away.Await}
	crash.Await.LaterMS = max(lasts+int64(d.of(-3000, -500, 0, 300, 1000, 3000)), 0)
	if away.Await.By == "" { // it waits for no event
		lost.AtMS, crash.AtMS = at+lost.Await.LaterMS, at+crash.Await.LaterMS
		lost.Await, crash.Await = Await{}, Await{}
	}
	p.Faults = append(p.Faults, away, lost, crash)
}

// clusterMS is how long the servers of a cluster take until they have chosen who leads, in milliseconds.
const clusterMS = 10_000

// cluster has three servers in the place of the broker, each with a part of its faults, and takes two of them away for a
// while, so that no majority is left.
func (d drawer) cluster(p *Plan) {
	p.Brokers = 3
	servers := p.hosts()["broker"]
	for i := range p.Faults {
		f := &p.Faults[i]
		f.AtMS += clusterMS
		if f.Host == "broker" {
			f.Host = servers[d.IntN(len(servers))]
		}
		if f.Other == "broker" {
			f.Other = servers[d.IntN(len(servers))]
		}
	}
	at, kept := d.near(p), d.IntN(len(servers))
	for i, host := range servers {
		if i == kept {
			continue
		}
		f := Fault{
			Kind: []string{Kill, Kill, Freeze, Cut, Full, Power}[d.IntN(6)], Host: host, Both: true,
			AtMS: at + int64(d.of(0, 10, 300, 1000)), ForMS: int64(d.of(1000, 3000, 6000, 15_000)),
		}
		if !p.bears(f) {
			f.Kind = Kill
		}
		if f.Kind == Kill {
			f.N = uint64(d.of(1, 10, 100))
		}
		p.Faults = append(p.Faults, f)
	}
}

// events are those that the faults of a storm wait for: what is under way then is what a store must not lose.
var events = []Await{
	{By: "trainer", Asks: "weights"},
	{By: "trainer", Hears: "weights"},
	{By: "trainer", Hears: "batches lease"},
	{By: "worker", Hears: "rollouts claim"},
	{By: "worker", Asks: "rollouts finish"},
	{By: "worker", Hears: "rollouts finish"},
	{By: "plane", Writes: "/weights/"},
	{By: "plane", Writes: "/manifest.json"},
	{By: "broker", Writes: "_log/"},
	{By: "broker", Writes: "_snapshots"},
	{By: "broker", Writes: "_payload/"},
	{By: "broker", Writes: "_writer/"},
}

// strikes are the kinds of a storm's faults, and where they come over. The plane and the worker are the same throughout.
var strikes = []struct {
	kind, host, other string
	weight            int
}{
	{Kill, "plane", "", 8},
	{Kill, "broker", "", 4},
	{Kill, "trainer", "", 1},
	{Freeze, "plane", "", 2},
	{Freeze, "broker", "", 3},
	{Freeze, "trainer", "", 2},
	{Cut, "plane", "broker", 4},
	{Cut, "trainer", "plane", 1},
	{Reset, "plane", "broker", 3},
	{Reset, "trainer", "plane", 1},
	{Slow, "plane", "broker", 4},
	{Drag, "broker", "", 2},
	{Drag, "plane", "", 2},
	{Full, "broker", "", 1},
	{Full, "plane", "", 1},
	{Mute, "trainer", "", 1},
	{Mute, "worker", "", 1},
}

// storm adds two to four faults that come within seconds of each other, over a plane, the broker and those who ask them.
func (d drawer) storm(p *Plan) {
	hosts := p.hosts()
	names := map[string]string{"plane": d.one(hosts, "plane"), "trainer": "trainer", "worker": d.one(hosts, "worker")}
	at, event := d.near(p), d.event(hosts)
	for n := d.between(2, 4); n > 0; {
		f, ok := d.strike(hosts, names)
		if !ok {
			continue
		}
		f.AtMS, f.Await = at, event
		later := int64(d.of(0, 0, 1, 20, 300, 1000, 3000, 6000))
		switch {
		case d.chance(3):
			f.Await = d.event(hosts)
			f.AtMS += later
		case event.By == "":
			f.AtMS += later
		default:
			f.Await.LaterMS = later
		}
		p.Faults = append(p.Faults, f)
		n--
	}
}

// event is what a fault waits for; nothing once in four times.
func (d drawer) event(hosts map[string][]string) Await {
	e := events[d.IntN(len(events))]
	if d.chance(4) || len(hosts[e.By]) == 0 && e.By != "trainer" {
		return Await{}
	}
	e.N = uint64(d.of(1, 1, 2, 5, 20))
	return e
}

// strike is one fault of a storm.
func (d drawer) strike(hosts map[string][]string, names map[string]string) (Fault, bool) {
	s := strikes[d.weighted(len(strikes), func(i int) int { return strikes[i].weight })]
	place := func(role string) string {
		if name, ok := names[role]; ok || role == "" {
			return name
		}
		return d.one(hosts, role)
	}
	f := Fault{Kind: s.kind, Host: place(s.host), Other: place(s.other), ForMS: int64(d.of(50, 300, 1000, 3000, 6000, 15_000))}
	if f.Host == "" || s.other != "" && f.Other == "" {
		return f, false
	}
	switch f.Kind {
	case Kill:
		f.N = uint64(d.of(1, 3, 10, 30, 100))
		f.N += uint64(d.IntN(int(f.N)))
	case Cut:
		f.Both = !d.chance(3)
	case Slow:
		f.N, f.Both = uint64(d.of(100, 1000)), true
	case Drag:
		f.N = uint64(d.of(1, 5, 20))
	}
	return f, true
}
