package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

// answered is the answer to a question; a zero one where there is none.
func answered(p *Plan, question string) Answer {
	for _, a := range p.Answers {
		if a.Question == question {
			return a
		}
	}
	return Answer{}
}

// The next unit of a side is worth what a plan that is told the larger split finds.
func TestTheNextUnitIsAFiniteDifference(t *testing.T) {
	p := made(t, small, "hardware.rollout_gpus=4", "hardware.train_gpus=12") // engines bind
	c, at := p.Recommended, p.Recommended.Best()
	if len(p.Next) != 2 || p.Next[0].Side != "rollout" || p.Next[1].Side != "train" {
		t.Fatalf("%+v", p.Next)
	}
	helped := 0
	for i, n := range p.Next {
		rollout, train := c.RolloutGPUs, c.TrainGPUs
		if i == 0 {
			rollout += n.GPUs
		} else {
			train += n.GPUs
		}
		told := made(t, small, fmt.Sprint("hardware.gpus=", rollout+train), fmt.Sprint("hardware.rollout_gpus=", rollout), fmt.Sprint("hardware.train_gpus=", train), "hardware.train_gpus_unit=1",
			fmt.Sprint("hardware.gpus_per_replica=", p.Machine.GPUsPerReplica)).Recommended.Best()
		if want := math.Max(at.UpdateS/told.UpdateS-1, 0); math.Abs(n.Speedup-want) > 0.01 {
			t.Errorf("%s: %.3f faster, a plan of that split is %.3f", n.Side, n.Speedup, want)
		}
		if rent := 2 * float64(n.GPUs); math.Abs(n.RentPerHour-rent) > 1e-9 || math.Abs(n.NetPerHour-(32*n.Speedup-rent)) > 1e-9 || n.CostPer1000Change > 0 == (n.NetPerHour > 0) {
			t.Errorf("%+v", n)
		}
		if n.Speedup > 0 {
			helped++
		}
	}
	if helped == 0 {
		t.Error("neither side would be faster")
	}
}

// Services do what the recommended setting makes: groups that a filter rejects count once.
func TestServicesCountWhatIsFiltered(t *testing.T) {
	p := made(t, small, "modelled.filter.acceptance=0.5", "modelled.verifier={time: {kind: fixed, mean_s: 10}}")
	f := p.Recommended.Best()
	if f.WasteShare < 0.5 {
		t.Fatalf("%.3f of the groups are wasted, of which half is filtered", f.WasteShare)
	}
	verdicts := 10 * float64(p.Recommended.BatchRollouts) / f.PeriodS / (1 - f.WasteShare)
	if a := answered(p, "judges"); math.Abs(a.Value-math.Ceil(verdicts+2*math.Sqrt(verdicts))) > 0 {
		t.Errorf("%v verdicts at once of %.1f on average: %s", a.Value, verdicts, a.Text)
	}
}

// A price of what nothing has costs nothing, and nothing is divided by it.
func TestAPriceOfNothing(t *testing.T) {
	p := made(t, small, "prices={cpu_hour: 0.05}")
	if _, err := json.Marshal(p); err != nil {
		t.Error(err)
	}
	for _, n := range p.Next {
		if text := n.words("USD"); strings.Contains(text, "NaN") || strings.Contains(text, "net") {
			t.Error(text)
		}
	}
}

// A side that waits gains nothing from more GPUs, and its rent is lost.
func TestAnIdleSideIsWorthNothing(t *testing.T) {
	p := made(t, small, "hardware.rollout_gpus=2", "hardware.train_gpus=14")
	if n := p.Next[1]; n.Speedup != 0 || n.NetPerHour != -n.RentPerHour || n.RentPerHour <= 0 {
		t.Errorf("one more trainer unit beside two rollout GPUs: %+v", n)
	}
	if n := p.Next[0]; n.Speedup < 0.1 || n.NetPerHour <= 0 {
		t.Errorf("one more engine there: %+v", n)
	}
}

// Reading prompts is a question where they are long. A router that keeps groups together spares what other engines
// read again. A simulation of five engines of 16 slots finds 44 % of prompts of groups of eight: 4.5 engines read each.
func TestReadingPrompts(t *testing.T) {
	short := made(t, small)
	if a := answered(short, "prefill"); a.Value <= 0 || a.Value > 0.05 || !strings.HasPrefix(a.Text, "No engines") {
		t.Errorf("%+v", a)
	}
	long := made(t, small, "hardware.prompt_tokens=16000", "hardware.gpus_per_replica=1", "hardware.rollout_gpus=3")
	read := answered(long, "prefill")
	if read.Value < readingWorth || strings.HasPrefix(read.Text, "No") {
		t.Errorf("%+v", read)
	}
	// Three engines read a group's prompt instead of one, of eight rollouts.
	want := read.Value * (3 - 1) / 8
	if have := answered(long, "routing").Value; math.Abs(have/want-1) > 1e-9 {
		t.Errorf("a router spares %g, of prompts read thrice %g", have, want)
	}
}

// Judges and starts of sandboxes follow from the rate of rollouts by Little's law.
func TestServicesByLittlesLaw(t *testing.T) {
	p := made(t, small, "modelled.verifier={time: {kind: fixed, mean_s: 30}}", "modelled.tools={calls: 2, time: {kind: fixed, mean_s: 1}}")
	f := p.Recommended.Best()
	busy := 30 * float64(p.Recommended.BatchRollouts) / f.PeriodS / (1 - f.WasteShare)
	if a := answered(p, "judges"); math.Abs(a.Value-math.Ceil(busy+2*math.Sqrt(busy))) > 0.5 {
		t.Errorf("%+v, and %.3g are judged at once", a, busy)
	}
	if a := answered(p, "sandboxes"); a.Value != float64(p.Recommended.Concurrency()) {
		t.Errorf("%+v", a)
	}
	if a := answered(p, "cells"); a.Value != 0 || !strings.Contains(a.Text, "No cell:") {
		t.Errorf("%+v", a)
	}
	large := made(t, small, "hardware.gpus=1024", "search.batch=[8192]")
	f = large.Recommended.Best()
	cores := 61e-6 * 2000 * float64(large.Recommended.BatchRollouts) / f.PeriodS / (1 - f.WasteShare) // of responses of 2,000 tokens, cut at 8,192
	if a := answered(large, "cells"); a.Value < 1 || math.Abs(a.Value-(cores/8-0.5)) > 0.5+0.1*cores/8 {
		t.Errorf("%+v, and the tokens take %.3g cores", a, cores)
	}
	if a := answered(made(t, small), "judges"); a.Question != "" {
		t.Errorf("judges without a verifier: %+v", a)
	}
}

// What was measured is not asked for, and what moves the plan most comes first.
func TestTheOneMeasurement(t *testing.T) {
	inputs := func(p *Plan) (names []string) {
		for _, u := range p.Uncertain {
			names = append(names, u.Input)
		}
		return names
	}
	open := made(t, small)
	if len(open.Uncertain) != 4 {
		t.Fatalf("%v", inputs(open))
	}
	for i, u := range open.Uncertain {
		if i > 0 && u.moves() > open.Uncertain[i-1].moves() || u.Regret < -1e-9 || u.Spread <= 0 {
			t.Errorf("%d: %+v", i, u)
		}
	}
	if first, last := open.Uncertain[0], open.Uncertain[3]; first.moves() < 0.05 || last.Input != "sync" || !strings.Contains(open.First().Text(80), "Measure first: "+first.Input) {
		t.Errorf("first %+v, last %+v:\n%s", first, last, open.First().Text(80))
	}
	// Where engines bind, an update takes as much longer as their steps do.
	for _, u := range made(t, small, "hardware.rollout_gpus=2", "hardware.train_gpus=14").Uncertain {
		if u.Input == "decoding" && (u.Measure != "headway calibrate URL" || math.Abs(math.Log(u.UpdateHigh)/u.Spread-1) > 0.15) {
			t.Errorf("%+v", u)
		}
	}
	measured := made(t, small, "hardware.bandwidth_use=0.6", "hardware.step_overhead_s=0.005", "hardware.train_tokens_per_s_per_gpu=5000", "modelled.sync.time_s=3")
	if have := inputs(measured); len(have) != 1 || have[0] != "lengths" {
		t.Errorf("after measuring the rest %v is asked for", have)
	}
}
