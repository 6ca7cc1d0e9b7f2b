package plan

import "math"

// Alternative is another setting worth knowing, by what it is better at.
type Alternative struct {
	// Name is faster, fresher, cheaper or synchronous.
	Name string `json:"name"`
	// Text states the gain and the cost, against the recommended setting.
	Text string `json:"text"`
	Candidate
}

// worthwhile is by what share an alternative must differ to be one.
const worthwhile = 0.03

// alternatives looks on both sides of the recommended setting: faster and staler,
// fresher and slower, cheaper.
func (s *search) alternatives() error {
	p := s.problem
	at := s.plan.Recommended.Best()
	pool := s.pool()
	kinds := []struct {
		name string
		of   func(*Figures) (float64, bool)
	}{
		{"faster", func(f *Figures) (float64, bool) {
			return f.StalenessMean, f.UpdateS < at.UpdateS*(1-2*worthwhile) && f.StalenessMean > at.StalenessMean*(1+worthwhile)
		}},
		{"fresher", func(f *Figures) (float64, bool) { return f.UpdateS, f.StalenessMean < at.StalenessMean*0.75 }},
		{"cheaper", func(f *Figures) (float64, bool) {
			over, _ := p.excess(f)
			return f.UpdateS, p.priced() && over == 0 && f.CostPerUpdate < at.CostPerUpdate*(1-worthwhile)
		}},
	}
	s.plan.Alternatives = []Alternative{}
	for _, kind := range kinds {
		index := pickLeast(pool, kind.of)
		if index < 0 {
			continue
		}
		c := *pool[index]
		if c.Simulated == nil && p.Simulation != nil {
			if err := s.eval.simulateAll("simulating alternatives", []*Candidate{&c}, thorough); err != nil {
				return err
			}
		}
		if f := c.Best(); c.figures() == nil {
			continue // it cannot be simulated
		} else if _, still := kind.of(&f); !still {
			continue // the simulator does not bear it out
		}
		s.plan.Alternatives = append(s.plan.Alternatives, Alternative{Name: kind.name, Text: compared(c.Best(), at, p.priced()), Candidate: c})
	}
	return nil
}

// pool is everything that has figures: the finalists, then what was ranked.
func (s *search) pool() []*Candidate {
	var pool []*Candidate
	for i := range s.finals {
		if s.finals[i].figures() != nil {
			pool = append(pool, &s.finals[i])
		}
	}
	for _, i := range s.front {
		pool = append(pool, &s.ranked[i])
	}
	if s.problem.priced() {
		for _, i := range s.cheapest() {
			pool = append(pool, &s.ranked[i])
		}
	}
	return pool
}

// cheapest are the ranked settings within the budget that no other beats in both
// price and time of an update.
func (s *search) cheapest() []int {
	p := s.problem
	cost := *p
	var front []int
	for i := range s.ranked {
		f := s.ranked[i].figures()
		if f == nil {
			continue
		}
		if over, _ := cost.excess(f); over > 0 {
			continue
		}
		beaten := false
		kept := front[:0]
		for _, k := range front {
			o := s.ranked[k].figures()
			if o.CostPerUpdate <= f.CostPerUpdate && o.UpdateS <= f.UpdateS {
				beaten = true
			}
			if beaten || !(f.CostPerUpdate <= o.CostPerUpdate && f.UpdateS <= o.UpdateS) {
				kept = append(kept, k)
			}
		}
		front = kept
		if !beaten {
			front = append(front, i)
		}
	}
	return front
}

// pickLeast returns the candidate of the least key among those that qualify, -1 for none.
func pickLeast(pool []*Candidate, of func(*Figures) (float64, bool)) int {
	chosen, least := -1, math.Inf(1)
	for i, c := range pool {
		if key, ok := of(c.figures()); ok && key < least {
			chosen, least = i, key
		}
	}
	return chosen
}
