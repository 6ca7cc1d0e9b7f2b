package doctor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// verdict is what is said of a document, by doctor or by a simulation.
type verdict struct {
	// Stalls: it would not run.
	Stalls bool
	// Wastes more than a tenth of its groups.
	Wastes bool
	// Idles: no train step runs in more than three tenths of the time.
	Idles bool
	// Budgeted: it has a staleness budget, or eta; Slack: that ends, or holds back, less than one group in a thousand.
	Budgeted, Slack bool
}

// agreement is the share of verdicts that must be right, of those that doctor
// names, of what simulations do, and of what they do not.
const agreement = 0.95

// randomDocument draws a document: its size, speeds, tail, policy and rules.
func randomDocument(random *rand.Rand, small bool) []string {
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	between := func(low, high float64) float64 { return low * math.Pow(high/low, random.Float64()) }
	size := []int{1, 2, 4, 8}[random.IntN(4)]
	groups := []int{4, 8, 16, 32}[random.IntN(4)]
	if small {
		size, groups = min(size, 4), min(groups, 16)
	}
	batch := size * groups
	slots := max(1, int(float64(batch)*between(0.4, 8)))
	overrides := []string{
		fmt.Sprintf("rollout.group_size=%d", size), fmt.Sprintf("train.batch=%d", batch), fmt.Sprintf("rollout.concurrency=%d", slots),
		fmt.Sprintf("modelled.train.utilization=%.3f", between(0.25, 4)),
		fmt.Sprintf("modelled.length={kind: lognormal, mean_tokens: 300, tailness: %d, cap_tokens: %d}", 20+random.IntN(71), 600+random.IntN(4000)),
	}
	add := func(chance float64, override string) {
		if override != "" && random.Float64() < chance {
			overrides = append(overrides, override)
		}
	}
	every := 1
	if random.IntN(4) == 0 {
		every = 1 + random.IntN(4)
		overrides = append(overrides, fmt.Sprintf("sync.every=%d", every))
	}
	step := fmt.Sprintf("modelled.sync.time_s=%.2f", between(0.1, 30))
	add(0.3, step)
	add(0.3, "sync.mode="+pick("in_flight", "pause", "restart", "drain"))
	add(0.3, "sync.trainer=blocked")
	factor := fmt.Sprintf("factor: %d", 1+random.IntN(3))
	selected := pick("oldest", "oldest", "newest", "fresh", "oldest-version")
	switch random.IntN(10) {
	case 0, 1:
		overrides = append(overrides, fmt.Sprintf("queue={policy: drop, %s, select: %s}", factor, selected))
	case 2, 3, 4, 5:
		overrides = append(overrides, fmt.Sprintf("queue={policy: max, max_staleness: %d, %s, abort: %v}", every-1+random.IntN(12), factor, random.IntN(3) == 0))
	case 6:
		overrides = append(overrides, fmt.Sprintf("queue={policy: block, %s}", factor))
	case 7:
		overrides = append(overrides, fmt.Sprintf("queue={policy: bounded, eta: %.2f}", float64(every-1)+between(0.1, 6)))
	case 8:
		overrides = append(overrides, fmt.Sprintf("queue={policy: threshold, staleness_threshold: %.2f}", between(0.05, 3)))
	case 9:
		add(1, pick("schedule=synchronous", "preset=prime-rl", "preset=openrlhf", "preset=slime", "preset=nemo-windowed", "preset=skyrl"))
	}
	add(0.1, fmt.Sprintf("queue.hold=%.2f", 0.05+0.6*random.Float64()))
	add(0.1, "queue.pause_at="+pick("1", "1.5", "3"))
	add(0.15, "rollout.start=gang")
	add(0.1, "rollout.redundancy=1")
	add(0.1, "modelled.environment={kind: exponential, mean_s: 4}")
	add(0.1, "rollout.partial.interrupt=batch")
	add(0.1, "rollout.prune.tokens="+pick("2", "20", "150", "900"))
	add(0.1, fmt.Sprintf("modelled.filter.acceptance=%.3f", between(0.05, 1)))
	switch random.IntN(12) { // what no closed form covers
	case 0:
		add(1, fmt.Sprintf("modelled.tools={calls: %d, time: {kind: exponential, mean_s: %.2f}, concurrency: %d, failure_rate: 0.02}", 1+random.IntN(3), between(0.2, 5), max(1, int(float64(slots)*between(0.05, 1)))))
	case 1:
		add(1, fmt.Sprintf("modelled.verifier={time: {kind: exponential, mean_s: %.2f}, concurrency: %d}", between(0.2, 5), max(1, int(float64(slots)*between(0.05, 1)))))
	case 2:
		add(1, fmt.Sprintf("modelled.sandbox={when: rollout, start: {kind: exponential, mean_s: %.2f}, start_concurrency: %d, failure_rate: 0.02}", between(0.2, 5), max(1, int(float64(slots)*between(0.05, 1)))))
	case 3:
		add(1, fmt.Sprintf("modelled.train.step_cv=%.2f", between(0.1, 1)))
	}
	if random.IntN(5) == 0 {
		overrides = append(overrides, fmt.Sprintf("modelled.solve={kind: fixed, rate: %s}", pick("0", "0.02", "0.5", "0.9", "1")))
		add(0.6, "filter.zero_advantage=true")
		add(0.4, "filter.solve_rate={low: 0.2, high: 0.8, drop: true}")
	}
	return overrides
}

// ofDoctor is doctor's verdict.
func ofDoctor(findings []Finding) verdict {
	var v verdict
	for _, f := range findings {
		switch f.Code {
		case "stalls", "no-slots", "no-batch", "band-empty":
			v.Stalls = true
		case "waste":
			v.Wastes = true
		case "budget-cannot-bind":
			v.Slack = true
		case "trainer-idle":
			share, _ := f.Figures.Value("trainer_idle_share")
			v.Idles = share >= idleMuch
		}
	}
	return v
}

// ofSimulation is what another simulation of the same document does, so many
// times as long as doctor's own; ok is false where that is too large.
func ofSimulation(t *testing.T, c Case, times int) (v verdict, ok bool) {
	t.Helper()
	e := newExamination(c)
	cfg, ok := e.probeConfig()
	if !ok {
		return v, false
	}
	cfg.Measured *= times
	p, err := simulate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	bounded := c.Document.Queue.Policy == "bounded" && e.behind() == 0
	budgeted := (c.Document.Queue.Policy == "max" || bounded) && c.Document.Schedule != "synchronous"
	v = verdict{Stalls: p.stalled != nil, Budgeted: budgeted}
	if p.stalled != nil {
		return v, true
	}
	v.Wastes = p.lost() > wasteWarning
	v.Idles = p.result.Summary.TrainerIdleRatio >= idleMuch
	v.Slack = budgeted && float64(p.stale) <= float64(p.groups)/1000
	if bounded {
		v.Slack = budgeted && float64(p.bounded) <= float64(p.starts)/1000
	}
	return v, true
}

// confusion counts agreements about one question.
type confusion struct{ both, doctorAlone, simulationAlone, neither int }

func (c *confusion) count(doctor, simulation bool) {
	switch {
	case doctor && simulation:
		c.both++
	case doctor:
		c.doctorAlone++
	case simulation:
		c.simulationAlone++
	default:
		c.neither++
	}
}

// rates are the shares of what doctor names that is so, of what is so that it
// names, and of what it is silent about that is not so.
func (c *confusion) rates() (named, found, silent float64) {
	rate := func(n, of int) float64 {
		if of == 0 {
			return 1
		}
		return float64(n) / float64(of)
	}
	return rate(c.both, c.both+c.doctorAlone), rate(c.both, c.both+c.simulationAlone), rate(c.neither, c.neither+c.simulationAlone)
}

// TestConfusion holds doctor's verdict on random documents against what a
// simulation of another seed then does: of four times the length over 1,000
// documents with HEADWAY_LONG, of doctor's own length over 20 without.
func TestConfusion(t *testing.T) {
	documents, times := 20, 1
	if os.Getenv("HEADWAY_LONG") != "" {
		documents, times = 1000, 4
	}
	random := rand.New(rand.NewPCG(11, 13))
	questions := []struct {
		name string
		of   func(verdict) (answer, asked bool)
		confusion
	}{
		{name: "stands still", of: func(v verdict) (bool, bool) { return v.Stalls, true }},
		{name: "throws over 10 % away", of: func(v verdict) (bool, bool) { return v.Wastes, !v.Stalls }},
		{name: "trainer idle over 30 %", of: func(v verdict) (bool, bool) { return v.Idles, !v.Stalls }},
		{name: "budget never binds", of: func(v verdict) (bool, bool) { return v.Slack, !v.Stalls && v.Budgeted }},
	}
	refused, large := 0, 0
	for examined := 0; examined < documents; {
		overrides := randomDocument(random, times == 1)
		if _, err := resolved(t, overrides...); err != nil {
			refused++
			continue
		}
		done, ok := ofSimulation(t, caseOf(t, append(overrides, "seed=424242")...), times)
		if !ok { // as doctor says of it
			if large++; large > documents/100 {
				t.Fatalf("%d documents are too large to simulate, the last %q", large, overrides)
			}
			t.Logf("too large: %q", overrides)
			continue
		}
		examined++
		said := ofDoctor(findingsOf(t, caseOf(t, append(overrides, "seed=1")...)))
		for i := range questions {
			q := &questions[i]
			answer, asked := q.of(done)
			if !asked {
				continue
			}
			claim, _ := q.of(said)
			q.count(claim, answer)
			if claim != answer {
				t.Logf("%s: doctor %v, simulation %v: %q", q.name, claim, answer, overrides)
			}
		}
	}
	t.Logf("%d documents, %d too large, and %d drawn that the schema refuses", documents, large, refused)
	t.Log("| verdict | both | doctor alone | simulation alone | neither | right where named | found | right where silent |")
	for i := range questions {
		q := &questions[i]
		named, found, silent := q.rates()
		t.Logf("| %s | %d | %d | %d | %d | %.1f %% | %.1f %% | %.1f %% |", q.name, q.both, q.doctorAlone, q.simulationAlone, q.neither, 100*named, 100*found, 100*silent)
		if q.doctorAlone+q.simulationAlone > 2 && min(named, found, silent) < agreement {
			t.Errorf("%s: %.3f right where named, %.3f found, %.3f right where silent, expected %g", q.name, named, found, silent, agreement)
		}
	}
}
