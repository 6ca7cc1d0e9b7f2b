package pool

import (
	"math"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// Bins of times grow by a twentieth from a microsecond to more than an hour.
const (
	leastS = 1e-6
	growth = 1.05
	bins   = 460
)

// times is a histogram of durations, fine enough for quantiles within half a bin.
type times struct {
	bins  [bins]int64
	count int64
	sumS  float64
}

func (h *times) add(took time.Duration) {
	s := took.Seconds()
	h.count++
	h.sumS += s
	bin := 0
	if s > leastS {
		bin = min(int(math.Log(s/leastS)/math.Log(growth))+1, bins-1)
	}
	h.bins[bin]++
}

// above is the upper end of a bin, in seconds.
func above(bin int) float64 { return leastS * math.Pow(growth, float64(bin)) }

// quantile of the times, in seconds, 0 while there are none.
func (h *times) quantile(q float64) float64 {
	if h.count == 0 {
		return 0
	}
	rank, seen := int64(math.Ceil(q*float64(h.count))), int64(0)
	for bin, n := range h.bins {
		if seen += n; seen >= max(rank, 1) {
			return above(bin) / math.Sqrt(growth)
		}
	}
	return above(bins - 1)
}

func (h *times) quantiles() protocol.Quantiles {
	return protocol.Quantiles{P50: h.quantile(0.5), P90: h.quantile(0.9), P99: h.quantile(0.99)}
}

// cumulative is the histogram with the bounds given, as Prometheus has it. A bin that a bound divides
// counts above it.
func (h *times) cumulative(bounds []float64) map[float64]uint64 {
	out := make(map[float64]uint64, len(bounds))
	seen, bin := int64(0), 0
	for _, bound := range bounds {
		for ; bin < bins && above(bin) <= bound*(1+1e-9); bin++ {
			seen += h.bins[bin]
		}
		out[bound] = uint64(seen)
	}
	return out
}
