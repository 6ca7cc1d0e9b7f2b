package doctor

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

const (
	keySandboxes = "modelled.sandbox.limit"
	keyStarts    = "modelled.sandbox.start_concurrency"
	keyTools     = "modelled.tools.concurrency"
	keyVerifiers = "modelled.verifier.concurrency"
	keyScorers   = "modelled.scorer.concurrency"
)

// servedLoad is the share of a service's capacity in use from which on its queue
// is what rollouts wait for.
const servedLoad = 0.9

var serviceChecks = []check{
	{Kind{
		Code: "service-saturated", Severities: []Severity{Warning}, Keys: []string{keyStarts, keyTools, keyVerifiers, keyScorers},
		When:  "tools, starting sandboxes, verifiers or scorers are in use for more than 90 % of what there is of them: rollouts wait for it in their slots, and starts run into `start_timeout_s`",
		Known: "simulation (Little's law): rollouts, or starts, a second times the mean time in service, against the number served at once",
	}, (*examination).servicesSaturated},
	{Kind{
		Code: "sandboxes-limit", Severities: []Severity{Warning}, Keys: []string{keySandboxes},
		When:  "fewer sandboxes than rollouts in flight: the others stand in their slots without one",
		Known: "arithmetic: `sandbox.limit` against `concurrency`. Interrupted rollouts keep their sandbox beyond their slot",
	}, (*examination).sandboxesLimit},
	{Kind{
		Code: "groups-fail", Severities: []Severity{Error, Warning}, Keys: []string{keyAttempts, keyStartTimeout},
		When:  "more than 5 % of groups end because a rollout failed in its last attempt: starts of sandboxes that take too long, tools or starts that fail; above 90 % an error",
		Known: "simulation",
	}, (*examination).groupsFail},
}

const (
	keyAttempts     = "failures.max_attempts"
	keyStartTimeout = "modelled.sandbox.start_timeout_s"
	// failedMuch is the share of groups that fail from which on it is a finding.
	failedMuch = 0.05
)

// service is one thing rollouts ask for beside tokens.
type service struct {
	key, what string
	// each is how often a rollout asks, seconds what one answer takes, servers how many are given at once; 0 for no limit.
	each, seconds float64
	servers       int
	// busy is how many were in service on average in a simulation.
	busy float64
}

// services lists what rollouts of the document ask for, and how much of it a
// simulation used.
func (e *examination) services(p *probe) []service {
	mean := func(model *workload.Times, err error) float64 {
		if err != nil || model.Zero() {
			return 0
		}
		return model.Mean() / 1e9
	}
	start := mean(e.document.SandboxStartModel())
	judge := mean(e.document.VerifierModel())
	var tool float64
	if e.document.Modelled.Tools.Calls > 0 {
		timed := e.document
		timed.Modelled.Verifier.Time = e.document.Modelled.Tools.Time // the same model of a time
		tool = mean(timed.VerifierModel())
	}
	s := p.result.Summary
	rate, latency := s.Throughput.ProductionRolloutsPerS, s.Latency
	list := []service{{keyTools, "tool calls", e.document.Modelled.Tools.Calls, tool, e.document.Modelled.Tools.Concurrency, rate * latency.ToolS},
		{keyVerifiers, "verdicts", 1, judge, e.document.Modelled.Verifier.Concurrency, rate * latency.VerifierS},
		{keyScorers, "scores", 1, e.document.ScoreMeanS(e.setting.Lengths.Mean()), e.document.Modelled.Scorer.Concurrency, rate * latency.ScorerS}}
	if e.document.Modelled.Sandbox.When != "" && s.WindowS > 0 {
		// Their latency has the wait in it, and leaves out starts of attempts that failed.
		list = append(list, service{keyStarts, "sandbox starts", 1, start, e.document.Modelled.Sandbox.StartConcurrency, float64(s.Services.SandboxStarts) / s.WindowS * start})
	}
	return list
}

func (e *examination) servicesSaturated() {
	if e.document.Modelled.Tools.Concurrency == 0 && e.document.Modelled.Verifier.Concurrency == 0 && e.document.Modelled.Scorer.Concurrency == 0 && e.document.Modelled.Sandbox.StartConcurrency == 0 {
		return
	}
	p := e.probe()
	if p == nil || p.stalled != nil {
		return
	}
	services := e.services(p)
	latency := e.setting.Lengths.Mean() / e.setting.DecodeTokensPerS
	if environment, err := e.document.EnvironmentTimes(); err == nil && !environment.Zero() {
		latency += environment.Mean() / 1e9
	}
	for _, s := range services {
		latency += s.each * s.seconds
	}
	rate := float64(e.rules.Concurrency()) / latency
	for _, s := range services {
		if s.servers == 0 || s.busy <= servedLoad*float64(s.servers) {
			continue
		}
		busy := min(s.busy, float64(s.servers)) // starts that time out count in full
		asked := max(rate*s.each*s.seconds, busy)
		f := e.add(Warning, s.key, Simulated)
		f.What = fmt.Sprintf("of %d %s at once %s are under way: rollouts wait for one", s.servers, s.what, short(busy))
		f.Why = fmt.Sprintf("if nobody waited, %d rollouts in flight of %s s each would begin %s a second, and ask for %s of %s s each; what is not served waits in its slot",
			e.rules.Concurrency(), short(latency), short(rate), short(s.each), short(s.seconds))
		if limit := e.document.Modelled.Sandbox.StartTimeoutS; s.key == keyStarts && limit > 0 {
			f.Why += fmt.Sprintf(", and gives up after %s s: a failed attempt", short(limit))
		}
		f.Do = fmt.Sprintf("%s of at least %.0f, or rollout.concurrency of about %.0f", s.key, asked/servedLoad+1, float64(e.rules.Concurrency())*servedLoad*float64(s.servers)/asked)
		f.Figures = Figures{{"busy_at_once", busy}, {"asked_at_once", asked}, {"served_at_once", float64(s.servers)}, {"rollouts_per_s_unserved", rate}}
	}
}

func (e *examination) groupsFail() {
	p := e.probe()
	if p == nil || p.stalled != nil || p.groups == 0 {
		return
	}
	share := float64(p.ended[loop.EndFailed]) / float64(p.groups)
	if share <= failedMuch {
		return
	}
	severity := Warning
	if share > wasteError {
		severity = Error
	}
	key, do := keyAttempts, "more failures.max_attempts, retries of the calls that fail, or failures.on_failure: shrink, which keeps the siblings"
	lost, why := "a rollout that fails", "the whole group is dropped with it, and what its siblings generated"
	if least := e.rules.GroupMin; e.rules.OnFailure == loop.ShrinkGroup {
		do = "more failures.max_attempts, or retries of the calls that fail"
		lost = "rollouts that fail"
		why = "each left fewer than failures.group_min rollouts of a group, and what those generated is dropped"
		if least > 1 {
			do += fmt.Sprintf(", or failures.group_min below %d", least)
		}
	}
	if box := e.document.Modelled.Sandbox; box.StartTimeoutS > 0 && box.StartConcurrency > 0 {
		key, do = keyStartTimeout, "a longer start_timeout_s, a higher start_concurrency, or fewer rollouts in flight"
	}
	f := e.add(severity, key, Simulated)
	f.What = fmt.Sprintf("%s of groups are lost to %s %s", percent(share), lost, plural(float64(e.rules.MaxAttempts), "time"))
	f.Why = why
	f.Do = do
	f.Figures = Figures{{"failed_groups_share", share}}
}

func (e *examination) sandboxesLimit() {
	limit, slots := e.document.Modelled.Sandbox.Limit, e.rules.Concurrency()
	if limit == 0 || limit >= slots {
		return
	}
	f := e.add(Warning, keySandboxes, Arithmetic)
	f.What = fmt.Sprintf("%d sandboxes for %d rollouts in flight: %d slots wait for one", limit, slots, slots-limit)
	f.Why = "a rollout keeps its sandbox until it ends, and its slot while it waits for one"
	f.Do = fmt.Sprintf("rollout.concurrency of at most %d, or as many sandboxes as slots", limit)
	f.Figures = Figures{{"sandboxes", float64(limit)}, {"slots", float64(slots)}}
}
