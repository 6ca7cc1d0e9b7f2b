package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/predict/theory"
)

// Plan is what a search found. Its JSON is that of headway plan --json.
type Plan struct {
	// Machine is what the GPUs can do, Workload what they are to do.
	Machine  Machine  `json:"machine"`
	Workload Workload `json:"workload"`
	// Budget and Prices are the document's; Prefer is what was made small.
	Budget config.Budget `json:"budget"`
	Prices config.Prices `json:"prices"`
	Prefer string        `json:"prefer"`
	// Assumed says what stands in for a budget that was not given, "" where one was.
	Assumed string `json:"budget_assumed,omitempty"`
	// PriceAssumed is true where prices.gpu_hour is the built-in example's, since the user gave none.
	PriceAssumed bool `json:"price_assumed,omitempty"`
	// Met is false where no setting keeps the budget: Recommended is then the closest.
	Met bool `json:"met"`
	// Shortfall says, where the budget is not met, which bound to relax and by how much.
	Shortfall []Relaxation `json:"shortfall,omitempty"`
	// Recommended is the setting to use, Why what speaks for it.
	Recommended Candidate `json:"recommended"`
	Why         []string  `json:"why"`
	// Alternatives lie on both sides of it.
	Alternatives []Alternative `json:"alternatives"`
	// Binding are the constraints by their cost, the most expensive first, among settings with a closed form. Where the recommended one has no closed form, they are not its own.
	Binding []Constraint `json:"binding"`
	// Levers are what single changes of the recommended setting would do.
	Levers []Lever `json:"levers"`
	// Findings are rules of thumb with the conditions under which they fail.
	Findings []Finding `json:"findings"`
	// Mode is the advice on verl's four modes.
	Mode Mode `json:"mode"`
	// Async compares with the synchronous schedule.
	Async Async `json:"async"`
	// Hosted compares with a hosted engine's price; nil where none was given.
	Hosted *Hosted `json:"hosted,omitempty"`
	// Accuracy is the error of the closed form against the simulated finalists.
	Accuracy Accuracy `json:"accuracy"`
	// Frontier are the settings that no other beats in both staleness and objective; Finalists those simulated.
	Frontier  []Candidate `json:"frontier"`
	Finalists []Candidate `json:"finalists"`
	// Searched says what was ranked.
	Searched Searched `json:"searched"`
	// ReplicaSizes compares the sizes of a replica that were tried, the best first; absent where the size was not searched.
	ReplicaSizes []ReplicaSize `json:"replica_sizes,omitempty"`
	// Next values one more engine, then one more unit of the trainer.
	Next []Next `json:"next_gpus"`
	// Answers are short ones to questions that people ask: placement, prefill, routers, sandboxes, judges, cells.
	Answers []Answer `json:"answers"`
	// Uncertain are the inputs without a measurement. The first is the one to measure: it moves the plan most.
	Uncertain []Uncertain `json:"uncertain"`
	// Warnings say what the plan leaves out.
	Warnings []string `json:"warnings"`

	// cloud is a sample of all ranked settings, for the page.
	cloud []Candidate
}

// Workload repeats what was understood of the document's.
type Workload struct {
	MeanTokens     float64 `json:"mean_tokens"`
	CapTokens      int     `json:"longest_tokens"`
	GroupSize      int     `json:"group_size"`
	TailMultiplier float64 `json:"tail_multiplier"`
	PromptTokens   float64 `json:"prompt_tokens"`
	EnvironmentS   float64 `json:"environment_s"`
	Acceptance     float64 `json:"acceptance"`
}

// search is one plan under way.
type search struct {
	problem *Problem
	eval    *evaluator
	grid    grid
	ranked  []Candidate // all settings of the grid, with their predictions
	front   []int
	finals  []Candidate // simulated, or predicted where nothing is simulated
	refused string      // why a setting could not be simulated
	plan    Plan
}

// Make searches. The error is a [config.Errors] where the document makes a plan
// impossible; a budget that no setting keeps is no error: see [Plan.Met]. It leaves the
// machine with the size of a replica that it chose in p, so that p writes documents of it.
func Make(p *Problem) (*Plan, error) {
	sizes, err := p.size()
	if err != nil {
		return nil, err
	}
	eval, err := newEvaluator(p)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if mode := p.Document.Sync.Mode; p.Uncovered == "" && (mode == theory.SyncRestart || mode == theory.SyncDrain) {
		p.Uncovered = "sync mode " + mode + " changes how long rollouts take"
	}
	s := &search{problem: p, eval: eval}
	if err := s.rank(); err != nil {
		return nil, err
	}
	s.plan.ReplicaSizes = sizes
	if err := s.finalists(); err != nil {
		return nil, err
	}
	if err := s.recommend(); err != nil {
		return nil, err
	}
	if err := s.eval.attribute(&s.plan.Recommended); err != nil {
		return nil, err
	}
	for _, add := range []func() error{s.alternatives, s.binding, s.levers, s.async, s.accuracy, s.hosted, s.next, s.uncertain} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	s.questions()
	s.findings()
	s.mode()
	s.explain()
	s.pins()
	return &s.plan, nil
}

// rank predicts the whole grid.
func (s *search) rank() error {
	var err error
	if s.grid, err = newGrid(s.problem, limitsOf(s.problem)); err != nil {
		return err
	}
	if s.ranked, err = s.eval.rankGrid(&s.grid); err != nil {
		return err
	}
	s.front = s.problem.frontier(s.ranked)
	d := s.problem.Document
	s.plan = Plan{Machine: s.problem.Machine, Budget: d.Budget, Prices: d.Prices, Prefer: d.Search.Prefer, Next: []Next{}, Answers: []Answer{}, Uncertain: []Uncertain{}, Searched: searched(s.grid, s.ranked),
		Workload: Workload{MeanTokens: s.eval.tokens, CapTokens: s.problem.Lengths.Quantile(1), GroupSize: d.Rollout.GroupSize,
			TailMultiplier: s.problem.Lengths.TailMultiplier(d.Rollout.GroupSize), PromptTokens: s.problem.Machine.PromptTokens,
			EnvironmentS: s.eval.meanS, Acceptance: d.Modelled.Filter.Acceptance}}
	s.assume()
	s.given()
	return nil
}

// rankGrid lists and predicts a grid's settings.
func (e *evaluator) rankGrid(g *grid) ([]Candidate, error) {
	list := g.candidates(e)
	if len(list) > PointsMax {
		return nil, e.problem.Document.Refuse("search", fmt.Sprintf("makes %d settings to rank", len(list)), fmt.Sprintf("at most %d: shorten its lists", PointsMax))
	}
	if len(list) == 0 {
		return nil, e.problem.Document.Refuse("search", "leaves no setting in which both sides have work: one side is always more than eight times faster",
			"other splits, more or fewer slots, or a larger batch")
	}
	e.problem.progress("ranking", 0, len(list))
	e.evaluateAll(list)
	return list, nil
}

// finalists simulates the settings that matter: rules that no closed form covers
// on the most promising splits, then the best of all.
func (s *search) finalists() error {
	p := s.problem
	bases := p.bases(s.ranked, s.front)
	var rules []Candidate
	for _, i := range bases {
		for _, c := range p.variants(s.ranked[i]) {
			s.eval.evaluate(&c)
			rules = append(rules, c)
		}
	}
	n := p.Document.Search.Finalists
	if len(bases) == 0 {
		if p.Simulation == nil {
			return fmt.Errorf("plan: no closed form covers any of %d settings (%s), and nothing is simulated", len(s.ranked), s.ranked[0].Uncovered)
		}
		rules = s.unpredicted()
		s.plan.Warnings = append(s.plan.Warnings, fmt.Sprintf("no closed form covers these settings (%s): the plan rests on %d simulated ones and their neighbours", s.ranked[0].Uncovered, len(rules)))
	}
	if p.Simulation == nil {
		s.finals = s.pick(rules, n)
		return nil
	}
	if p.Uncovered != "" {
		s.plan.Warnings = append(s.plan.Warnings, p.Uncovered+": closed forms leave that out, and only choose what is simulated")
		for _, i := range bases {
			rules = append(rules, s.ranked[i])
		}
	}
	if err := s.eval.simulateAll("screening rules", addresses(rules), screening); err != nil {
		return err
	}
	s.plan.Searched.Simulated = len(rules)
	for i := range rules {
		if rules[i].Simulated == nil {
			s.refused = rules[i].Uncovered
		}
	}
	rules, err := s.polish(rules)
	if err != nil {
		return err
	}
	s.finals = s.pick(rules, n)
	n, err = s.eval.settle(s.finals, thorough)
	s.plan.Searched.Simulated += n
	if err != nil {
		return err
	}
	return s.rescue(rules)
}

// unpredictedMax is how many settings are simulated where no closed form helps to
// choose among them.
const unpredictedMax = 48

// unpredicted takes settings evenly from the grid, with its smallest queue and most
// frequent sync, to begin from.
func (s *search) unpredicted() []Candidate {
	var plainest []int
	for i := range s.ranked {
		if s.ranked[i].QueueFactor == s.grid.queues[0] && s.ranked[i].SyncEvery == s.grid.syncs[0] {
			plainest = append(plainest, i)
		}
	}
	var list []Candidate
	for _, i := range spread(plainest, unpredictedMax) {
		list = append(list, s.ranked[i])
	}
	return list
}

// addresses of a list's elements.
func addresses(list []Candidate) []*Candidate {
	pointers := make([]*Candidate, len(list))
	for i := range list {
		pointers[i] = &list[i]
	}
	return pointers
}

// pick chooses the finalists: half from the best rules, half from the frontier
// of what closed forms cover, around the budget.
func (s *search) pick(rules []Candidate, n int) []Candidate {
	p := s.problem
	var picked []Candidate
	add := func(c Candidate) {
		same := func(o Candidate) bool { return o.Setting == c.Setting }
		if len(picked) < n && c.figures() != nil && !slices.ContainsFunc(picked, same) {
			picked = append(picked, c)
		}
	}
	if best := p.best(s.ranked); best >= 0 {
		add(s.ranked[best])
	} else if both := slices.Concat(rules, s.ranked); p.closest(both) >= 0 {
		add(both[p.closest(both)])
	}
	good := p.order(rules)
	for _, i := range good[:min(len(good), n/2)] {
		add(rules[i])
	}
	for _, i := range s.aroundBudget((n + 3) / 4) {
		add(s.ranked[i])
	}
	for _, i := range spread(s.front, n) {
		add(s.ranked[i])
	}
	for _, i := range p.order(s.ranked) {
		if len(picked) == n {
			break
		}
		add(s.ranked[i])
	}
	return picked
}

// order sorts candidates by how much they exceed the budget, then by objective.
func (p *Problem) order(list []Candidate) []int {
	var order []int
	keys := make([][2]float64, len(list))
	for i := range list {
		if f := list[i].figures(); f != nil {
			over, _ := p.excess(f)
			order, keys[i] = append(order, i), [2]float64{over, p.objective(f)}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(keys[a][:], keys[b][:]) })
	return order
}

// aroundBudget are the best settings that a closed form's error could move
// across the budget: those within 5 % of it on either side, by objective.
func (s *search) aroundBudget(n int) []int {
	p := s.problem
	var near []int
	for i := range s.ranked {
		f := s.ranked[i].figures()
		if f == nil {
			continue
		}
		if over, _ := p.excess(f); over < 0.05 {
			near = append(near, i)
		}
	}
	slices.SortStableFunc(near, func(a, b int) int {
		return cmp.Compare(p.objective(s.ranked[a].figures()), p.objective(s.ranked[b].figures()))
	})
	return near[:min(len(near), n)]
}

// spread takes n of a list, ends included, evenly.
func spread(list []int, n int) []int {
	if len(list) <= n || n < 2 {
		return list
	}
	taken := make([]int, n)
	for i := range taken {
		taken[i] = list[i*(len(list)-1)/(n-1)]
	}
	return slices.Compact(taken)
}

// recommend chooses, of what was simulated where anything was.
func (s *search) recommend() error {
	p := s.problem
	chosen := p.best(s.finals)
	s.plan.Met = chosen >= 0
	if chosen < 0 {
		chosen = p.closest(s.finals)
	}
	if chosen < 0 {
		return fmt.Errorf("plan: none of the settings tried can be simulated: %s", cmp.Or(s.refused, "the last of them gave no steps to measure"))
	}
	s.plan.Recommended = s.finals[chosen]
	s.plan.Finalists = s.finals
	if !s.plan.Met {
		s.plan.Shortfall = s.shortfall()
	}
	if f := s.plan.Recommended.Simulated; f != nil && !f.Settled {
		s.plan.Warnings = append(s.plan.Warnings, "the recommended setting's "+f.Doubt+": its means may be off by more than their intervals")
	}
	for _, i := range spread(s.front, frontierMax) {
		s.plan.Frontier = append(s.plan.Frontier, s.ranked[i])
	}
	s.plan.cloud = s.sample()
	return nil
}

// Sizes of what a plan lists.
const (
	frontierMax = 40
	cloudMax    = 1500
)

// sample thins the ranked settings for the page, evenly over the grid.
func (s *search) sample() []Candidate {
	var list []Candidate
	covered := 0
	for i := range s.ranked {
		if s.ranked[i].Predicted != nil {
			covered++
		}
	}
	step, seen := max(covered/cloudMax, 1), 0
	for i := range s.ranked {
		if s.ranked[i].Predicted == nil {
			continue
		}
		if seen%step == 0 {
			list = append(list, s.ranked[i])
		}
		seen++
	}
	return list
}
