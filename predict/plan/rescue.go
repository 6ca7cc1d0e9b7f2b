package plan

import "slices"

// Rescuing looks on where no finalist keeps the budget, so that the verdict does not
// hang on their number.
const (
	rescueMax  = 20   // settings simulated for it
	rescueNear = 0.02 // beyond the budget, by closed form or screening
)

// rescue simulates further settings that seem to keep the budget, one after the
// other, until one does.
func (s *search) rescue(rules []Candidate) error {
	p := s.problem
	pool := slices.Concat(rules, s.ranked)
	tried := 0
	for _, i := range p.order(pool) {
		over, _ := p.excess(pool[i].figures())
		if p.best(s.finals) >= 0 || over > rescueNear || tried == rescueMax {
			return nil
		}
		same := func(o Candidate) bool { return o.Setting == pool[i].Setting }
		if slices.ContainsFunc(s.finals, same) {
			continue
		}
		tried++
		s.finals = append(s.finals, pool[i])
		n, err := s.eval.settle(s.finals[len(s.finals)-1:], thorough)
		s.plan.Searched.Simulated += n
		if err != nil {
			return err
		}
	}
	return nil
}
