package transformer

import "math"

// Sample draws a token from the softmax of logits at temperature 1: the first
// whose cumulative probability exceeds u, for u uniform in [0, 1). It returns
// the token and its log-prob, and leaves the probabilities in logits.
func Sample(logits []float32, u float64) (token int32, logp float32) {
	softmax(logits)
	var sum float64
	chosen := -1
	for i, p := range logits {
		if p == 0 {
			continue
		}
		chosen = i
		if sum += float64(p); sum > u {
			break
		}
	}
	return int32(chosen), float32(math.Log(float64(logits[chosen])))
}

// Greedy returns the most probable token, the lowest id among equals, and its
// log-prob, and leaves the probabilities in logits.
func Greedy(logits []float32) (token int32, logp float32) {
	softmax(logits)
	best := 0
	for i, p := range logits {
		if p > logits[best] {
			best = i
		}
	}
	return int32(best), float32(math.Log(float64(logits[best])))
}
