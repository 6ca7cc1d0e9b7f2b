package calibrate

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// responsesMin is how many responses a tail needs.
const responsesMin = 100

// tailSigma is the sigma of the logarithm at a tailness of 100, as the document has it.
const tailSigma = 1.3

// lengths finds the mean of responses and, from a histogram, their tail.
func (s *servers) lengths() {
	tokens := by(responseTokens)
	if s.sum(responseTokens.count()) == 0 {
		tokens = by(generated)
	}
	mean, low, high, ok := s.ratio(tokens, s.ended())
	if !ok || !(mean >= 1) {
		s.note("no response ended: how long they are is not known; scrape for longer")
		return
	}
	n := s.sumOf(s.ended())
	s.biased()
	cutShare, cap := s.sum(cut)/max(s.sum(finished), 1), 0.0
	if count := s.sum(longestAllowed.count()); cutShare > 0 && count > 0 {
		cap = math.Round(s.sum(longestAllowed) / count)
		s.add("longest response allowed, tokens", "modelled.length.cap_tokens", cap, cap, cap, fmt.Sprintf("the requests' max_tokens; %.1f %% of responses were cut", 100*cutShare))
	} else if cutShare > 0.005 {
		s.note("%.1f %% of responses were cut: give modelled.length.cap_tokens", 100*cutShare)
	}
	from := fmt.Sprintf("%.0f responses", n)
	fit, tailLow, tailHigh, ok := lognormalOf(s.buckets(), mean, cap)
	if !ok || n < responsesMin {
		s.add("mean response before the cap, tokens", "modelled.length.mean_tokens", mean, max(low, 1), high, from)
		return
	}
	// The nominal mean is before the cap; its interval is as wide as that of what was seen.
	nominal := fit.nominal()
	s.add("mean response before the cap, tokens", "modelled.length.mean_tokens", nominal, max(nominal*low/mean, 1), nominal*high/mean, from)
	s.add("tail of the responses, 0 to 100", "modelled.length.tailness", 100*fit.sigma/tailSigma, 100*tailLow/tailSigma, 100*tailHigh/tailSigma, "the histogram of lengths, as a lognormal")
}

// sumOf adds up over all windows.
func (s *servers) sumOf(of func(window) float64) float64 {
	total := 0.0
	for _, w := range s.windows {
		total += of(w)
	}
	return total
}

// shortTimes is how many times as long as a response pages must reach for the long ones not to be missed.
const shortTimes = 5

// biased notes where long responses are missed, since they had not ended.
func (s *servers) biased() {
	reached := 0.0
	for _, w := range s.windows {
		reached += w.seconds
	}
	reached /= float64(max(s.engines, 1))
	if n := s.sum(latency.count()); n > 0 && reached < shortTimes*s.sum(latency)/n {
		s.note("the pages reach over %s s, and a response takes %s s: if the server had just begun, the long ones are missed", short(reached), short(s.sum(latency)/n))
	}
}

// buckets is the histogram of lengths of what ended between the first and the last page of every engine.
func (s *servers) buckets() []bucket {
	var all []bucket
	for _, w := range s.windows {
		for i, b := range w.to.lengths {
			before := 0.0
			if i < len(w.from.lengths) && w.from.lengths[i].most == b.most {
				before = w.from.lengths[i].count
			}
			if i >= len(all) {
				all = append(all, bucket{most: b.most})
			}
			if all[i].most == b.most {
				all[i].count += b.count - before
			}
		}
	}
	return all
}

// lognormal is a distribution of lengths, cut at cap where that is above 0.
type lognormal struct{ mu, sigma, cap float64 }

// nominal is its mean before the cap.
func (l lognormal) nominal() float64 { return math.Exp(l.mu + l.sigma*l.sigma/2) }

// below is the share of at most so many tokens.
func (l lognormal) below(most float64) float64 {
	if l.cap > 0 && most >= l.cap || math.IsInf(most, 1) {
		return 1
	}
	if l.sigma == 0 {
		if math.Log(most) >= l.mu {
			return 1
		}
		return 0
	}
	return distuv.UnitNormal.CDF((math.Log(most) - l.mu) / l.sigma)
}

// mean is the mean after the cap.
func (l lognormal) mean() float64 {
	if l.cap <= 0 {
		return l.nominal()
	}
	if l.sigma == 0 {
		return min(l.nominal(), l.cap)
	}
	d := (math.Log(l.cap) - l.mu) / l.sigma
	return l.nominal()*distuv.UnitNormal.CDF(d-l.sigma) + l.cap*(1-distuv.UnitNormal.CDF(d))
}

// withMean moves it so that its mean after the cap is so much.
func (l lognormal) withMean(mean float64) lognormal {
	low, high := math.Log(mean)-l.sigma*l.sigma/2-1, math.Log(mean)+6
	for range 60 {
		l.mu = (low + high) / 2
		if l.mean() < mean {
			low = l.mu
		} else {
			high = l.mu
		}
	}
	return l
}

// lognormalOf is the lognormal of a mean after the cap that fits a histogram best, and the sigmas between which its
// likelihood says 95 %. It is not known where fewer than three buckets have anything.
func lognormalOf(buckets []bucket, mean, cap float64) (best lognormal, low, high float64, ok bool) {
	filled, before := 0, 0.0
	for _, b := range buckets {
		if b.count > before {
			filled++
		}
		before = b.count
	}
	if filled < 3 || cap > 0 && mean >= cap {
		return best, 0, 0, false
	}
	const (
		steps = 260
		drop  = 1.92 // half the 95 % point of chi-square with one degree of freedom
	)
	most := math.Inf(-1)
	var likely [steps + 1]float64
	for i := range likely {
		l := lognormal{sigma: tailSigma * float64(max(i, 1)) / steps, cap: cap}.withMean(mean)
		likely[i] = l.likelihood(buckets)
		if likely[i] > most {
			most, best = likely[i], l
		}
	}
	low, high = best.sigma, best.sigma
	for i, v := range likely {
		if sigma := tailSigma * float64(max(i, 1)) / steps; v >= most-drop {
			low, high = min(low, sigma), max(high, sigma)
		}
	}
	return best, low, high, true
}

// likelihood is the logarithm of the probability of a histogram.
func (l lognormal) likelihood(buckets []bucket) float64 {
	total, count, share := 0.0, 0.0, 0.0
	for _, b := range buckets {
		below := l.below(b.most)
		if n := b.count - count; n > 0 {
			total += n * math.Log(max(below-share, 1e-12))
		}
		count, share = b.count, below
	}
	return total
}
