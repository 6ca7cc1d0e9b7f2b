package player

import (
	"maps"
	"math"
	"sync"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/episode"
)

// Tally counts records. It is safe for concurrent use; the zero Tally has counted none.
type Tally struct {
	mu       sync.Mutex
	counts   protocol.Episodes
	failures map[string]int64
	limits   map[string]int64
	parts    map[episode.Kind]*durations
	whole    durations
}

// Add counts one record.
func (t *Tally) Add(record episode.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failures == nil {
		t.failures, t.limits, t.parts = map[string]int64{}, map[string]int64{}, map[episode.Kind]*durations{}
	}
	c := &t.counts
	switch {
	case record.Reward != nil:
		c.Scored++
		c.RewardSum += *record.Reward
	case record.Failure == episode.Unwanted:
		c.Unwanted++
	default:
		c.Failed++
		t.failures[string(record.Failure)]++
	}
	c.Turns += int64(record.Turns)
	for class, n := range record.Limits {
		t.limits[class] += int64(n)
	}
	t.addSpans(record.Spans)
}

// addSpans counts where the time of an episode went. t.mu must be held.
func (t *Tally) addSpans(spans []episode.Span) {
	spent := map[episode.Kind]int64{}
	from, to := int64(math.MaxInt64), int64(0)
	for _, s := range spans {
		spent[s.Kind] += s.EndNS - s.StartNS
		from, to = min(from, s.StartNS), max(to, s.EndNS)
	}
	for kind, ns := range spent {
		if t.parts[kind] == nil {
			t.parts[kind] = &durations{}
		}
		t.parts[kind].add(ns)
	}
	if len(spans) > 0 {
		t.whole.add(to - from)
	}
}

// Episodes is what was counted, in copies.
func (t *Tally) Episodes() protocol.Episodes {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.counts
	e.Failures, e.Limits = maps.Clone(t.failures), maps.Clone(t.limits)
	e.Whole = t.whole.spent("")
	for _, kind := range Kinds {
		if d := t.parts[kind]; d != nil {
			e.Parts = append(e.Parts, d.spent(string(kind)))
		}
	}
	return e
}

// Kinds are the parts of an episode in the order in which they are shown.
var Kinds = []episode.Kind{episode.Model, episode.SandboxWait, episode.SandboxStart, episode.Tool, episode.VerifierWait, episode.Verifier}

// durations are times of which mean and quantiles are asked: counted by buckets, each 2 % wider
// than the one before, so that a quantile is off by 1 %.
type durations struct {
	count   int64
	sumNS   float64
	buckets map[int]int64
}

var bucketWidth = math.Log(1.02)

func (d *durations) add(ns int64) {
	if d.buckets == nil {
		d.buckets = map[int]int64{}
	}
	ns = max(ns, 0)
	d.count++
	d.sumNS += float64(ns)
	d.buckets[int(math.Log(float64(ns+1))/bucketWidth)]++
}

// quantileS is the time that a share of all did not exceed, in seconds.
func (d *durations) quantileS(share float64) float64 {
	highest := 0
	for b := range d.buckets {
		highest = max(highest, b)
	}
	left := int64(math.Ceil(share * float64(d.count)))
	for b := range highest + 1 {
		if left -= d.buckets[b]; left <= 0 {
			return (math.Exp((float64(b)+0.5)*bucketWidth) - 1) / 1e9
		}
	}
	return 0
}

func (d *durations) spent(part string) protocol.Spent {
	if d.count == 0 {
		return protocol.Spent{Part: part}
	}
	return protocol.Spent{Part: part, Episodes: d.count, MeanS: d.sumNS / float64(d.count) / 1e9, P50S: d.quantileS(0.5), P99S: d.quantileS(0.99), TotalS: d.sumNS / 1e9}
}
