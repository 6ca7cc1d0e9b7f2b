package presence

import (
	"math/rand/v2"
	"testing"
	"time"
)

// script ticks a clock at its rate for a time, and returns the instant after it.
func script(c *Clock, at int64, lasts time.Duration, able bool) int64 {
	for end := at + int64(lasts); at < end; {
		at += int64(Every)
		c.Tick(at, able)
	}
	return at
}

func TestClock(t *testing.T) {
	const s = time.Second
	type phase struct {
		lasts time.Duration
		able  bool
		jump  bool // without a tick
	}
	for name, c := range map[string]struct {
		phases []phase
		want   time.Duration
	}{
		"present":                                               {[]phase{{lasts: 60 * s, able: true}}, 60 * s},
		"an outage of 15 s and its grace":                       {[]phase{{lasts: 5 * s, able: true}, {lasts: 15 * s}, {lasts: 10 * s, able: true}}, 5 * s},
		"after the grace it goes on":                            {[]phase{{lasts: 5 * s, able: true}, {lasts: 15 * s}, {lasts: 14 * s, able: true}}, 9 * s},
		"an outage of 4 s and its grace":                        {[]phase{{lasts: 4 * s}, {lasts: 10 * s, able: true}}, 6 * s},
		"a short outage has the least grace":                    {[]phase{{lasts: 1 * s}, {lasts: 10 * s, able: true}}, 7 * s},
		"a suspend of an hour counts as a gap, and has a grace": {[]phase{{lasts: 5 * s, able: true}, {lasts: time.Hour, jump: true}, {lasts: 12 * s, able: true}}, 7*s + Gap - Every},
		"a suspend within an outage":                            {[]phase{{lasts: 5 * s, able: true}, {lasts: s}, {lasts: time.Hour, jump: true}, {lasts: s}, {lasts: 11 * s, able: true}}, 6 * s},
		"an outage within the grace":                            {[]phase{{lasts: 8 * s}, {lasts: 4 * s, able: true}, {lasts: 2 * s}, {lasts: 5 * s, able: true}}, s},
		"starved: a tick in 3 s":                                {[]phase{{lasts: 3 * s, jump: true}, {able: true, lasts: Every}, {lasts: 3 * s, jump: true}, {able: true, lasts: Every}, {lasts: 3 * s, jump: true}}, Gap},
	} {
		t.Run(name, func(t *testing.T) {
			clock, at := New(0), int64(0)
			for _, p := range c.phases {
				if p.jump {
					at += int64(p.lasts)
					continue
				}
				at = script(clock, at, p.lasts, p.able)
			}
			// The first tick of an outage ends an interval that counts.
			if got := time.Duration(clock.Now(at)); got < c.want || got > c.want+2*Every {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// Whatever the ticks, the clock never falls, never runs faster than theirs, and stands still while it is said to.
func TestClockNeverFalls(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		clock, at, before := New(0), int64(0), int64(0)
		looked := at
		for range 300 {
			at += random.Int64N(int64(2 * Gap))
			if random.IntN(20) == 0 {
				at += random.Int64N(int64(time.Hour))
			}
			if random.IntN(2) == 0 {
				clock.Tick(at, random.IntN(3) > 0)
			}
			now, absent := clock.Now(at), !clock.able
			if now < before || now-before > at-looked {
				t.Fatalf("seed %d: from %d to %d in %d", seed, before, now, at-looked)
			}
			if absent && clock.Now(at+int64(time.Hour)) != now {
				t.Fatalf("seed %d: it goes on while the process cannot answer", seed)
			}
			before, looked = now, at
		}
	}
}
