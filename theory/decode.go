package theory

import "math"

// DecodeThroughput returns v_R = C·s(C) in tokens/s for slots whose decode speed
// s(n), tokens/s of one slot, falls with the number n that generate: where slots
// are work-conserving (start order stream, policy drop) all C always do, so that
// the speed at full concurrency is the only one that counts. Error of staleness
// against the simulator at most 0.4 %.
//
// covered is false, with the same value, where slots stand still for a while and
// those left decode faster: with start order gang, policy block, a sync that
// drains or pauses, or time spent in environments, in which the slot is held and
// the engine is not. Busy is then C·(share of a rollout's time that it decodes);
// a caller that knows it gives it as slots.
func DecodeThroughput(speed func(active float64) float64, p Point, environment bool) (tokensPerS float64, covered bool) {
	c := p.ConcurrencyRollouts
	idle := p.Start == StartGang || p.Policy == PolicyBlock || p.Policy == PolicySynchronous ||
		p.SyncMode == SyncDrain || p.SyncMode == SyncPause || p.SyncMode == SyncRestart || environment
	tokensPerS = c * speed(c)
	return tokensPerS, !idle && tokensPerS > 0 && !math.IsInf(tokensPerS, 0)
}
