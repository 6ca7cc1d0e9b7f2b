package calibrate

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// arrival is the moment at which so many tokens of a response were there.
type arrival struct {
	at     time.Duration
	tokens int
}

// trace is what one slot sampled in a round: a list of arrivals for each response. A response
// decodes from its first token to its last.
type trace struct {
	responses [][]arrival
	// first: the arrival of the first token was told twice, as such and as a piece.
	first bool
}

func (t *trace) begin() {
	t.responses = append(t.responses, make([]arrival, 0, 64))
	t.first = false
}

// arrive records that tokens are there in all.
func (t *trace) arrive(at time.Duration, tokens int) {
	last := &t.responses[len(t.responses)-1]
	if n := len(*last); n > 0 && (*last)[n-1].tokens >= tokens {
		return
	}
	*last = append(*last, arrival{at, tokens})
}

// more records further tokens. Those that come with the first were told by FirstToken in part.
func (t *trace) more(at time.Duration, tokens int) {
	r := t.responses[len(t.responses)-1]
	before := 0
	if len(r) > 0 {
		before = r[len(r)-1].tokens
	}
	if !t.first {
		t.first = true
		before = 0
	}
	t.arrive(at, before+tokens)
}

// end records that a response is over, with so many tokens.
func (t *trace) end(at time.Duration, tokens int) { t.arrive(at, tokens) }

// sampled is how many tokens of a response were there at a moment, in fractions: they are taken to
// come evenly between two arrivals.
func sampled(r []arrival, at time.Duration) float64 {
	i := sort.Search(len(r), func(i int) bool { return r[i].at >= at })
	switch {
	case i == 0:
		return float64(r[0].tokens)
	case i == len(r):
		return float64(r[i-1].tokens)
	}
	before, after := r[i-1], r[i]
	share := float64(at-before.at) / float64(after.at-before.at)
	return float64(before.tokens) + share*float64(after.tokens-before.tokens)
}

// edge is where a response begins or ends to decode.
type edge struct {
	at   time.Duration
	slot int
	by   int // +1 or -1
	of   []arrival
}

// tokensMin is how many tokens a slot must have brought in a round's stretches for them to have a speed.
const tokensMin = 8

// speed is the speed of a slot over the stretches in which all of them decoded, in tokens per
// second; 0 where those are too short for one.
func speed(slots []trace) float64 {
	var edges []edge
	for s, t := range slots {
		for _, r := range t.responses {
			if len(r) > 1 {
				edges = append(edges, edge{r[0].at, s, 1, r}, edge{r[len(r)-1].at, s, -1, r})
			}
		}
	}
	// An end comes before a beginning of the same moment, so that a slot decodes one response at a time.
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	running := make([][]arrival, len(slots))
	decoding := 0
	var tokens, seconds float64
	for i, e := range edges {
		if decoding == len(slots) {
			from := edges[i-1].at
			seconds += (e.at - from).Seconds()
			for _, r := range running {
				tokens += sampled(r, e.at) - sampled(r, from)
			}
		}
		decoding += e.by
		if running[e.slot] = nil; e.by > 0 {
			running[e.slot] = e.of
		}
	}
	if seconds <= 0 || tokens < float64(tokensMin*len(slots)) {
		return 0
	}
	return tokens / seconds / float64(len(slots))
}
