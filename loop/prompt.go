package loop

// solveOne is a solve rate of 1 in the fixed point of estimates.
const solveOne = 1 << 16

// level is the curriculum's estimate of one difficulty.
type level struct {
	Measured bool
	// Rate is the share of solved rollouts, solveOne for all.
	Rate int32
}

// nextPrompt returns what the next group plays: a prompt that is to be played
// again, or the next of the set at a level the curriculum chooses.
func (l *Loop) nextPrompt() prompt {
	s := &l.s
	if len(s.Requeue) > 0 {
		p := s.Requeue[0]
		s.Requeue = append(s.Requeue[:0], s.Requeue[1:]...)
		return p
	}
	var p prompt
	if l.cfg.Prompts > 0 {
		p.Prompt = l.promptAt(s.Cursor)
		s.Cursor++
	}
	if l.cfg.Levels > 0 {
		p.Level = l.chooseLevel()
	}
	return p
}

// promptAt returns the prompt at a place, from 0, of the sequence that groups
// play. Every pass goes through the whole set, from another place and with
// another stride: in one order for ever, prompts would keep their neighbours,
// and a short one beside long ones would be dropped again and again.
func (l *Loop) promptAt(place int64) int64 {
	n := uint64(l.cfg.Prompts)
	pass, i := uint64(place)/n, uint64(place)%n
	first, stride := Draw(^l.cfg.Seed, 2*pass)%n, 1+Draw(^l.cfg.Seed, 2*pass+1)%n
	for divisor(stride, n) != 1 { // else the stride misses some
		stride++
	}
	return 1 + int64((first+i*(stride%n))%n)
}

// divisor returns the greatest common divisor.
func divisor(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// requeue keeps the prompt of a group that was lost by no fault of its own.
func (l *Loop) requeue(gi int32, end End, why Reason) {
	if !l.cfg.Requeue || end != EndEvicted && end != EndDiscarded && end != EndCancelled || why == ReasonSurplus {
		return
	}
	x := &l.s.Extras[gi]
	p := prompt{Prompt: x.Prompt, Level: x.Level}
	if p.Prompt == 0 {
		p.Prompt = int64(l.s.Groups[gi].ID)
	}
	l.s.Requeue = append(l.s.Requeue, p)
}

// chooseLevel draws a level for a new group: any with the chance of Explore,
// else one whose solve rate is within the band or unknown, else one of those
// nearest to the band.
func (l *Loop) chooseLevel() int32 {
	s := &l.s
	explore, pick := Draw(l.cfg.Seed, 2*s.Draws), Draw(l.cfg.Seed, 2*s.Draws+1)
	s.Draws++
	if unit(explore) < l.cfg.Explore {
		return 1 + int32(pick%uint64(len(s.Levels)))
	}
	least, n := int32(solveOne), uint64(0)
	for i := range s.Levels {
		switch d := l.offBand(&s.Levels[i]); {
		case d < least:
			least, n = d, 1
		case d == least:
			n++
		}
	}
	k := pick % max(n, 1)
	for i := range s.Levels {
		if l.offBand(&s.Levels[i]) != least {
			continue
		}
		if k == 0 {
			return int32(i) + 1
		}
		k--
	}
	return 1
}

// offBand is how far a level's solve rate is from the band, 0 within it or unknown.
func (l *Loop) offBand(lv *level) int32 {
	low, high := int32(l.cfg.SolveLow*solveOne), int32(l.cfg.SolveHigh*solveOne)
	switch {
	case !lv.Measured:
		return 0
	case lv.Rate < low:
		return low - lv.Rate
	case lv.Rate > high:
		return lv.Rate - high
	}
	return 0
}

// measureLevel takes the solve rate of a ready group.
func (l *Loop) measureLevel(gi int32) {
	x := &l.s.Extras[gi]
	if x.Level < 1 || int(x.Level) > len(l.s.Levels) {
		return
	}
	lv := &l.s.Levels[x.Level-1]
	rate := int32(int64(x.Solved) * solveOne / int64(l.s.Groups[gi].Scored))
	if !lv.Measured {
		*lv = level{true, rate}
		return
	}
	lv.Rate += (rate - lv.Rate) / 8
}

// inBand reports whether a ready group's solve rate is within the band.
func (l *Loop) inBand(gi int32) bool {
	const rounding = 1e-9
	rate := float64(l.s.Extras[gi].Solved) / float64(l.s.Groups[gi].Scored)
	return rate >= l.cfg.SolveLow-rounding && rate <= l.cfg.SolveHigh+rounding
}
