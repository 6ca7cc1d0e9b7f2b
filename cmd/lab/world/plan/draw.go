package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// StepsCounted and the like are what a seed has to meet to count.
const (
	StepsCounted  = 20
	FaultsCounted = 5
	KindsCounted  = 3
)

// snapshotStreams is in the paths of the files in which a broker keeps the run's snapshots, and not in those of its own.
const snapshotStreams = "/streams/headway_world_snapshots"

// Draw is the plan of a seed: topology, rules, sizes and faults. Seeds from aimedFrom on aim at one pair each.
func Draw(seed uint64) Plan {
	if seed >= aimedFrom {
		return aimed(seed)
	}
	return drawn(seed)
}

func drawn(seed uint64) Plan {
	d := drawer{rand.New(rand.NewPCG(seed, 0x68656164776179))}
	p := Plan{
		Seed: seed, Steps: StepsCounted + d.between(0, 4),
		Workers: d.between(1, 3),
		Rules: Rules{
			GroupSize: d.of(1, 2, 2, 4), Attempts: 40, Queue: d.queue(), Sync: d.sync(),
			LeaseMS: d.of(2000, 4000, 8000), ClaimMS: d.of(2000, 4000, 8000), WriterMS: d.of(1000, 2000, 3000),
		},
		Trainer: Trainer{StepMS: d.of(10, 50, 100, 200)},
	}
	p.Rules.Batch = p.Rules.GroupSize * d.between(1, 2)
	p.Embedded = d.chance(4)
	p.Planes = 1
	if !p.Embedded {
		p.Planes = d.of(1, 2, 2, 2)
	}
	for range d.between(1, 3) {
		p.Engines = append(p.Engines, Engine{Slots: d.between(2, 4), Spans: d.chance(2), TokenUS: d.of(1000, 3000, 10000)})
	}
	p.Durable = d.chance(4)
	if d.chance(4) { // a lease and a claim have to be renewed in the middle of the work
		p.Trainer.StepMS, p.ThinkMS = p.Rules.LeaseMS*d.between(1, 3)/2, p.Rules.ClaimMS*d.between(1, 3)/2
	}
	if d.chance(4) {
		d.receivers(&p)
	}
	d.faults(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x726f6c6c6f757473))}.rollouts(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x73746f7265))}.store(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x747261696e657273))}.trainers(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x63616c6c73))}.calls(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x7061697273))}.pairs(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x706c616365))}.placement(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x7265666572))}.references(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x63656c6c73))}.cells(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x756e73796e636564))}.unsynced(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x74616b656e))}.takenOver(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x6d696463686174))}.midChat(&p)
	drawer{rand.New(rand.NewPCG(seed, 0x6f70656e656e76))}.environment(&p)
	p.pace()
	p.man()
	p.flipOnce()
	return p
}

// flipOnce leaves one flip where no plane mirrors the log: a run survives the damage of one snapshot, not of all.
func (p *Plan) flipOnce() {
	if !p.Store.NoTrace {
		return
	}
	flipped := false
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool {
		again := f.Kind == Flip && flipped
		flipped = flipped || f.Kind == Flip
		return again
	})
}

// placement draws where rollouts get their slots.
func (d drawer) placement(p *Plan) { p.Rules.CacheAware = d.chance(3) }

// references draws whether the trainer leases by reference.
func (d drawer) references(p *Plan) {
	p.Trainer.References = d.chance(4)
	p.Trainer.Ahead = p.Trainer.References && d.chance(2)
}

// pace has workers pause where the queue drops what it has no room for. Without that they make tens of thousands of
// rollouts that are dropped, while a step is long or the trainer is away. A plane's own players cannot pause: there are none
// while steps are long.
func (p *Plan) pace() {
	if !p.drops() {
		return
	}
	p.ThinkMS = max(p.ThinkMS, 30, p.Trainer.StepMS/20)
	if p.Chat != nil && p.floods() {
		p.Chat.Players = 0
		p.Workers = max(p.Workers, len(p.Homes()))
	}
}

// man gives each slot a player where engines drain before they take weights. With fewer of them the players may all have
// rollouts that were interrupted, and wait for the switch, which waits for rollouts that nobody plays.
func (p *Plan) man() {
	if p.Chat == nil || p.Chat.Players == 0 || !strings.Contains(p.Rules.Sync, "drain") {
		return
	}
	p.Chat.Players = 0
	for _, e := range p.Engines {
		p.Chat.Players += e.Slots
	}
}

// drops says whether the queue drops what it has no room for.
func (p *Plan) drops() bool {
	return strings.HasPrefix(p.Rules.Queue, "policy: drop") || strings.HasPrefix(p.Rules.Queue, "policy: max")
}

// dropsLong says whether players would fill long steps with rollouts that are dropped.
func (p *Plan) dropsLong() bool { return p.drops() && p.Trainer.StepMS >= p.Rules.LeaseMS/2 }

// floods says whether they would, or fast engines the whole run.
func (p *Plan) floods() bool {
	made := 0 // of a dozen tokens, in the steps and some 40 s of faults
	for _, e := range p.Engines {
		made += e.Slots * (p.Steps*p.Trainer.StepMS + 40_000) * 1000 / (12 * e.TokenUS)
	}
	return p.dropsLong() || p.drops() && made > 10_000
}

// receivers gives a world receivers, one an engine at most.
func (d drawer) receivers(p *Plan) { p.Receivers = d.between(1, len(p.Engines)) }

// queue is a policy of the queue with its keys.
func (d drawer) queue() string {
	switch d.IntN(6) {
	case 0:
		return fmt.Sprintf("policy: max, max_staleness: %d, factor: 2, pause_at: 2", d.between(3, 5))
	case 1:
		return fmt.Sprintf("policy: max, max_staleness: %d, abort: true, pause_at: 2", d.between(3, 5))
	case 2:
		return "policy: drop, factor: 2, pause_at: 2"
	case 3:
		return "policy: block, factor: 2, select: oldest-version"
	}
	return fmt.Sprintf("policy: bounded, eta: %d", d.between(1, 4))
}

// sync is how versions reach the engines.
func (d drawer) sync() string {
	mode := []string{"in_flight", "in_flight", "in_flight", "pause", "restart", "drain"}[d.IntN(6)]
	text := fmt.Sprintf("mode: %s, every: %d", mode, d.of(1, 1, 1, 2))
	if mode == "in_flight" && d.chance(3) {
		text += ", switch: rolling"
	}
	if d.chance(4) {
		text += ", trainer: blocked"
	}
	return text
}

type drawer struct{ *rand.Rand }

func (d drawer) between(low, high int) int { return low + d.IntN(high-low+1) }

func (d drawer) of(values ...int) int { return values[d.IntN(len(values))] }

// chance is true once in n times.
func (d drawer) chance(n int) bool { return d.IntN(n) == 0 }

// weighted is one of n, each as likely as its weight is large.
func (d drawer) weighted(n int, weight func(i int) int) int {
	sum := 0
	for i := range n {
		sum += weight(i)
	}
	at, i := d.IntN(sum), 0
	for at >= weight(i) {
		at -= weight(i)
		i++
	}
	return i
}

// one is a host of a role, or empty where there is none.
func (d drawer) one(hosts map[string][]string, role string) string {
	if n := len(hosts[role]); n > 0 {
		return hosts[role][d.IntN(n)]
	}
	return ""
}

// hosts are the names of the plan's hosts by role.
func (p Plan) hosts() map[string][]string {
	found := map[string][]string{"trainer": {"trainer"}}
	add := func(role string, n int) {
		for i := range n {
			found[role] = append(found[role], fmt.Sprint(role, i))
		}
	}
	add("plane", p.Planes)
	add("worker", p.Workers)
	add("engine", len(p.Engines))
	for _, number := range p.Cells() {
		found["cell"] = append(found["cell"], CellName(number))
	}
	add("receiver", p.Receivers)
	for rank := 1; rank < p.Trainer.Ranks; rank++ {
		found["trainer"] = append(found["trainer"], fmt.Sprint("trainer", rank))
	}
	switch {
	case p.Brokers > 0:
		add("broker", p.Brokers)
	case !p.Embedded:
		found["broker"] = []string{"broker"}
	}
	return found
}

// reach is where a kind of fault can come over, and how often relative to others.
var reach = []struct {
	kind   string
	weight int
	roles  []string
}{
	{Kill, 8, []string{"plane", "plane", "broker", "trainer", "worker", "engine", "receiver"}},
	{Freeze, 4, []string{"plane", "plane", "broker", "trainer", "worker", "engine", "receiver"}},
	{Cut, 4, []string{"plane", "broker", "trainer", "worker", "engine", "receiver"}},
	{Reset, 4, []string{"plane", "broker", "trainer", "worker", "engine", "receiver"}},
	{Slow, 3, []string{"plane", "broker", "trainer", "worker", "engine", "receiver"}},
	{Clock, 2, []string{"plane", "broker", "trainer", "worker"}},
	{Full, 1, []string{"broker", "plane"}},
	{Drag, 1, []string{"broker", "plane"}},
	{Double, 3, []string{"trainer", "worker"}},
	{Mute, 3, []string{"trainer", "worker"}},
	{Rot, 3, []string{"receiver"}},
	{Power, 3, []string{"broker", "plane", "receiver", "trainer", "worker", "engine"}},
	{Flip, 2, []string{"broker", "plane"}},
}

// faults draws them over the time that the run is likely to take.
func (d drawer) faults(p *Plan) {
	hosts := p.hosts()
	span := p.span()
	kinds := map[string]bool{}
	for n := d.between(FaultsCounted, 10); len(p.Faults) < n || len(kinds) < KindsCounted; {
		f, ok := d.fault(hosts)
		if !ok || !p.bears(f) {
			continue
		}
		f.AtMS = int64(d.between(1500, span))
		kinds[f.Kind] = true
		p.Faults = append(p.Faults, f)
	}
}

// span is the time that the run is likely to take, in milliseconds.
func (p Plan) span() int { return 3000 + p.Steps*(p.Trainer.StepMS+p.ThinkMS/4+150) }

// bears says whether the promises hold under a fault: a loss of power where disks are waited for, and a flipped bit of
// a snapshot where the broker's files are.
func (p Plan) bears(f Fault) bool {
	plane, cell := strings.HasPrefix(f.Host, "plane"), strings.HasPrefix(f.Host, "cell")
	files := strings.HasPrefix(f.Host, "broker") || p.Embedded && plane
	switch f.Kind {
	case Power:
		return p.Durable || !files && !plane
	case Flip:
		return files
	case Full:
		return files || cell
	}
	return true
}

func (d drawer) fault(hosts map[string][]string) (Fault, bool) {
	r := reach[d.weighted(len(reach), func(i int) int { return reach[i].weight })]
	role := r.roles[d.IntN(len(r.roles))]
	if len(hosts[role]) == 0 {
		return Fault{}, false
	}
	f := Fault{Kind: r.kind, Host: d.one(hosts, role), ForMS: int64(d.of(50, 300, 1000, 3000, 6000))}
	if f.Kind == Kill {
		f.N = uint64(d.of(1, 10, 100, 1000))
		f.N += uint64(d.IntN(int(f.N)))
	}
	d.detail(&f, hosts)
	return f, true
}

// detail draws what a fault of a kind needs beside its host and its time.
func (d drawer) detail(f *Fault, hosts map[string][]string) {
	switch f.Kind {
	case Flip:
		f.N, f.Path = 1, snapshotStreams
	case Cut, Slow, Reset:
		f.Other, f.Both = d.other(hosts, f.Host), d.chance(2)
		f.N = uint64(d.of(10, 100, 1000))
	case Clock:
		f.ForMS, f.ByMS = 0, int64(d.of(-3600_000, -5000, 5000, 60_000, 3600_000))
	case Drag:
		f.N = uint64(d.of(1, 5, 20))
	}
}

// other is a host that the host speaks with, or empty for all.
func (d drawer) other(hosts map[string][]string, host string) string {
	if d.chance(3) {
		return ""
	}
	roles := []string{"plane"}
	switch {
	case strings.HasPrefix(host, "plane"):
		roles = []string{"broker", "engine", "trainer", "worker", "receiver"}
	case strings.HasPrefix(host, "cell"):
		roles = []string{"broker", "broker", "engine"}
	}
	return d.one(hosts, roles[d.IntN(len(roles))])
}
