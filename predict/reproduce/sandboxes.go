package reproduce

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/report"
)

// sandboxRollouts are the numbers of concurrent rollouts that were run, one sandbox each.
var sandboxRollouts = []int{96, 256, 360, 960}

// sandboxSettle are the train steps before idle time is counted: the first ones wait
// for every sandbox to start.
const sandboxSettle = 8

// sandboxStudy is an agent whose rollouts each need a sandbox.
func sandboxStudy(ctx context.Context, o Options) (Case, error) {
	const name = "verl_uni_agent"
	c, d, err := caseStudy(name, "One sandbox a rollout, up to 960 at once")
	if err != nil {
		return Case{}, err
	}
	c.Setup = append(c.Setup,
		"Simulated: predict/reproduce/cases/verl_uni_agent.yaml, in which every line says whether it was stated or is assumed; `headway simulate` reads it. Not stated, and assumed: the GPU (H200, by the hardware model), FP8 weights, lengths of a mean of 40 thousand tokens at tailness 70 (which puts about 5 % at the cap: the share at the cap goes in), 30 tool calls of 10 s, batch and rules.",
		"The rate at which sandboxes start is inferred from the observation itself, 960 in an hour, and goes in; what it does at other numbers of rollouts comes out. The trainer's idle share and the tail latency come out.",
	)
	seeds := o.studySeeds()
	var documents []config.Config
	for _, n := range sandboxRollouts {
		at := sized(d, n)
		if o.Quick {
			at.Steps.Measured = 2 * sandboxSettle
		}
		for seed := range seeds {
			at.Seed = uint64(seed + 1)
			documents = append(documents, at)
		}
	}
	runs, err := o.simulateDocuments(ctx, name, documents)
	if err != nil {
		return c, err
	}
	g := Grid{Title: "By concurrent rollouts, means over the seeds", Header: []string{"rollouts at once", "trainer idle", "at the cap", "mean latency, s", "tail latency, s",
		"longest start-up, s", "sandboxes at once", "start-ups given up", "waiting for a sandbox, s"}}
	for i, n := range sandboxRollouts {
		at := runs[i*seeds : (i+1)*seeds]
		row := fmt.Sprintf("%d rollouts", n)
		c.Quantities = append(c.Quantities,
			Quantity{Row: row, Name: "trainer_idle_share", Simulated: over(at, sandboxIdle), Note: "observed: 0.30 to 0.60, for 32 to 48 train GPUs"},
			Quantity{Row: row, Name: "tail latency_s", Simulated: over(at, tailLatency), Decimals: whole,
				Note: "observed: 7500; in which run, and which quantile, is not stated. Ours is the longest rollout of the run"})
		mean := func(of func(observed) float64) float64 { return over(at, of).Mean }
		g.Rows = append(g.Rows, []string{fmt.Sprint(n), report.Share(mean(sandboxIdle)), report.Share(mean(atCap)), report.Figure(mean(latency), 0), report.Figure(mean(tailLatency), 0),
			report.Figure(mean(startMax), 0), report.Figure(mean(sandboxesMax), 0), report.Figure(mean(givenUp), 1), report.Figure(mean(sandboxWait), 0)})
	}
	c.Grids = []Grid{g}
	few, most := runs[:seeds], runs[len(runs)-seeds:]
	c.Findings = []string{
		fmt.Sprintf("Start-ups: at the rate of 960 an hour, 96 sandboxes are there within %s s and 960 within %s s, where the last are given up (%s a run): one-hour start-ups and dead initialisations belong to the largest number alone, as observed.",
			report.Figure(over(few, startMax).Mean, 0), report.Figure(over(most, startMax).Mean, 0), report.Figure(over(most, givenUp).Mean, 1)),
		fmt.Sprintf("More rollouts than fit the engines' cache (43 a replica, 258 in all) buy no speed: between 256 and 960 the trainer's idle share goes from %s to %s while a rollout's latency grows from %s to %s s.",
			report.Share(over(runs[seeds:2*seeds], sandboxIdle).Mean), report.Share(over(most, sandboxIdle).Mean),
			report.Figure(over(runs[seeds:2*seeds], latency).Mean, 0), report.Figure(over(most, latency).Mean, 0)),
		fmt.Sprintf("The tail latency is that of a rollout which decodes to the cap: 131 072 tokens at the speed of a full replica, plus its tools and its wait for a sandbox. Observed were 7 500 s; ours are %s s with 256 rollouts and %s s with 960.",
			report.Figure(over(runs[seeds:2*seeds], tailLatency).Mean, 0), report.Figure(over(most, tailLatency).Mean, 0)),
		fmt.Sprintf("The trainer's idle share was 30 to 60 %% over the runs; ours goes from %s with 96 rollouts to %s with 960, for 40 train GPUs.", report.Share(over(few, sandboxIdle).Mean), report.Share(over(most, sandboxIdle).Mean)),
	}
	return c, nil
}

// The figures of the study.
func sandboxIdle(r observed) float64  { return idleAfter(r.Series, sandboxSettle) }
func atCap(r observed) float64        { return r.Summary.Length.TruncatedShare }
func latency(r observed) float64      { return r.Summary.Latency.EndToEndS }
func tailLatency(r observed) float64  { return r.Summary.RolloutS.Max }
func startMax(r observed) float64     { return r.Summary.Services.SandboxStartMaxS }
func sandboxesMax(r observed) float64 { return float64(r.Summary.Services.SandboxesLiveMax) }
func givenUp(r observed) float64      { return float64(r.Summary.Services.SandboxTimeouts) }
func sandboxWait(r observed) float64  { return r.Summary.Latency.SandboxWaitS }
