package plan

import (
	"bytes"
	"encoding/json"
	"html"
	"math"
	"os"
	"strings"
	"testing"
)

// small is a plan that ranks a few thousand settings in a moment.
const small = `
rollout:
  group_size: 8
modelled:
  length: {kind: lognormal, mean_tokens: 2000, tailness: 60, cap_tokens: 8192}
hardware: {model: qwen3-8b, gpu: h100-sxm, gpus: 16}
prices: {gpu_hour: 2}
budget: {staleness_mean: 2}
search: {batch: [128, 256, 512, 1024], queue_factor: [1, 2], slots_per_gpu: [16, 32, 64], policies: [drop]}
`

// made plans without simulating anything.
func made(t *testing.T, text string, overrides ...string) *Plan {
	t.Helper()
	problem := problemOf(t, text, overrides...)
	p, err := Make(&problem)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The recommended setting of a fixed problem, by closed form alone.
func TestRecommendation(t *testing.T) {
	p := made(t, small)
	c, f := p.Recommended, p.Recommended.Best()
	if !p.Met || c.RolloutGPUs+c.TrainGPUs > 16 || f.StalenessMean > 2*(1+kept) {
		t.Fatalf("met %v, %+v", p.Met, c)
	}
	for _, check := range []struct {
		name       string
		have, want float64
		tolerance  float64
	}{
		{"rollout GPUs", float64(c.RolloutGPUs), 8, 1.01}, {"batch", float64(c.BatchRollouts), 512, 0},
		{"staleness", f.StalenessMean, 1.9, 0.11}, {"update, s", f.UpdateS, 4.1, 0.5}, {"period, s", f.PeriodS, 62, 6},
	} {
		if math.Abs(check.have-check.want) > check.tolerance {
			t.Errorf("%s is %.4g, want %g ± %g", check.name, check.have, check.want, check.tolerance)
		}
	}
	if p.Searched.Settings < 500 || p.Searched.Predicted < p.Searched.Settings*9/10 {
		t.Errorf("searched %+v", p.Searched)
	}
}

// Nothing that was ranked keeps the budget and is better than the recommended.
func TestRecommendedIsTheBestOfWhatWasRanked(t *testing.T) {
	problem := problemOf(t, small)
	eval, err := newEvaluator(&problem)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGrid(&problem, limitsOf(&problem))
	if err != nil {
		t.Fatal(err)
	}
	list, err := eval.rankGrid(&g)
	if err != nil {
		t.Fatal(err)
	}
	chosen := made(t, small).Recommended.Best()
	for i := range list {
		if f := list[i].figures(); f != nil && f.StalenessMean <= 2 && f.UpdateS < chosen.UpdateS*(1-tie-1e-9) {
			t.Errorf("%+v takes %g, the recommended %g", list[i].Setting, f.UpdateS, chosen.UpdateS)
		}
	}
}

func TestMoreGPUsAreNeverSlower(t *testing.T) {
	last := math.Inf(1)
	for _, gpus := range []string{"8", "16", "24", "32", "48", "64"} {
		f := made(t, small, "hardware.gpus="+gpus, "hardware.train_gpus_unit=1").Recommended.Best()
		if f.UpdateS > last*(1+tie) {
			t.Errorf("%s GPUs take %g s an update, fewer took %g", gpus, f.UpdateS, last)
		}
		last = min(last, f.UpdateS)
	}
}

func TestALooserBudgetIsNeverWorse(t *testing.T) {
	last := math.Inf(1)
	for _, budget := range []string{"0.8", "1", "1.5", "2", "3", "5", "10"} {
		p := made(t, small, "budget.staleness_mean="+budget)
		f := p.Recommended.Best()
		if p.Met && f.UpdateS > last*(1+tie) {
			t.Errorf("budget %s takes %g s an update, a tighter one took %g", budget, f.UpdateS, last)
		}
		if p.Met {
			last = min(last, f.UpdateS)
		}
	}
	if math.IsInf(last, 1) {
		t.Error("no budget was met")
	}
}

func TestDoublingPricesDoublesCost(t *testing.T) {
	one, two := made(t, small).Recommended, made(t, small, "prices.gpu_hour=4").Recommended
	if one.Setting != two.Setting {
		t.Fatalf("prices changed the setting: %+v and %+v", one.Setting, two.Setting)
	}
	for _, cost := range [][2]float64{
		{one.Predicted.CostPerStep, two.Predicted.CostPerStep}, {one.Predicted.CostPerMillionTokens, two.Predicted.CostPerMillionTokens},
	} {
		if math.Abs(cost[1]/cost[0]-2) > 1e-9 {
			t.Errorf("%g became %g", cost[0], cost[1])
		}
	}
}

// Sandboxes cost their CPUs for every slot, GPUs their hours, on both sides.
func TestCosts(t *testing.T) {
	p := problemOf(t, small, "prices.cpu_hour=0.1", "prices.cpus_per_sandbox=2", "prices.rollout_gpu_hour=1")
	s := Setting{RolloutGPUs: 4, TrainGPUs: 2, Replicas: 4, SlotsPerReplica: 8}
	if have, want := p.costPerHour(s), 4*1.0+2*2.0+32*2*0.1; math.Abs(have-want) > 1e-12 {
		t.Errorf("costs %g an hour, want %g", have, want)
	}
}

// A larger prompt takes time from decoding and adds to the train step.
func TestRates(t *testing.T) {
	slot, step := make([]float64, 2), make([]float64, 2)
	for i, prompt := range []string{"0", "4096"} {
		p := problemOf(t, small, "hardware.prompt_tokens="+prompt)
		eval, err := newEvaluator(&p)
		if err != nil {
			t.Fatal(err)
		}
		c := Candidate{Setting: Setting{RolloutGPUs: 8, TrainGPUs: 8, Replicas: 8, SlotsPerReplica: 16, BatchRollouts: 256}}
		eval.rates(&c)
		slot[i], step[i] = c.DecodeTokensPerS, c.StepS
	}
	if slot[1] >= slot[0] || step[1] < step[0]*2.9 {
		t.Errorf("slot %v tokens/s, step %v s", slot, step)
	}
}

// A budget that nothing keeps names what to relax, and by how much: relaxed so,
// it is met.
func TestShortfallIsEnough(t *testing.T) {
	p := made(t, small, "budget.staleness_mean=0.05")
	if p.Met || len(p.Shortfall) != 1 || p.Shortfall[0].Needed == nil {
		t.Fatalf("met %v, shortfall %+v", p.Met, p.Shortfall)
	}
	again := made(t, small, "budget.staleness_mean="+plain(*p.Shortfall[0].Needed*1.0001))
	if !again.Met {
		t.Errorf("relaxed to %g it is still not met: %+v", *p.Shortfall[0].Needed, again.Shortfall)
	}
}

// The trainer's floor binds where the model is large for its GPUs.
func TestTheMemoryFloorBinds(t *testing.T) {
	p := made(t, small, "hardware.gpus=12", "hardware.train_gpus_min=10", "hardware.train_gpus_unit=1", "budget.staleness_mean=8")
	for _, c := range p.Binding {
		if c.Name == "trainer_memory" {
			if !c.Binds || c.ObjectiveRatio > 0.9 {
				t.Errorf("%+v", c)
			}
			return
		}
	}
	t.Error("no such constraint")
}

// Every lever says what it holds fixed, and the split's moves GPUs at constant
// slots per GPU: more rollout GPUs, more of them in flight, more staleness where
// the trainer binds.
func TestLevers(t *testing.T) {
	p := made(t, small)
	seen := map[string]bool{}
	for _, l := range p.Levers {
		seen[l.Name] = true
		if l.HoldsFixed == "" || l.Change == "" || !(l.PeriodRatio > 0) {
			t.Errorf("%+v", l)
		}
	}
	for _, name := range []string{"split", "batch", "queue_factor", "concurrency", "tail", "gpus", "sync_every", "sync_time"} {
		if !seen[name] {
			t.Errorf("no lever %s", name)
		}
	}
}

// A lever that takes more GPUs than there are says how many.
func TestLeversBeyondTheGPUs(t *testing.T) {
	for _, l := range made(t, small, "hardware.rollout_gpus=8", "hardware.train_gpus=8").Levers {
		if want := 17; l.Name == "gpus" && (l.GPUsNeeded != want || l.Keeps && l.keeping() != "needs 17 GPUs") || l.Name != "gpus" && l.GPUsNeeded != 0 {
			t.Errorf("%s says %q and needs %d GPUs of 16", l.Change, l.keeping(), l.GPUsNeeded)
		}
	}
}

// The document that is written resolves to the setting it was made from.
func TestWrittenDocuments(t *testing.T) {
	problem := problemOf(t, small)
	p, err := Make(&problem)
	if err != nil {
		t.Fatal(err)
	}
	rules := append(problem.variants(p.Recommended), p.Recommended, synchronous(p.Recommended))
	problem.Document.Search.Policies = append(policiesDefault, "max")
	rules = append(rules, problem.variants(p.Recommended)...)
	for _, c := range rules {
		d, err := problem.DocumentOf(&c)
		if err != nil {
			t.Errorf("%s: %v", c.Rule(), err)
			continue
		}
		policy := d.Queue.Policy
		if d.Schedule == "synchronous" {
			policy = d.Schedule
		}
		if policy != c.Policy || d.Rollout.Concurrency != c.Concurrency() || d.Train.Batch != c.BatchRollouts || d.Sync.Every != c.SyncEvery ||
			d.Queue.Hold != c.Hold || d.Queue.StalenessThreshold != c.StalenessThreshold || d.Queue.Eta != c.Eta {
			t.Errorf("%s became %s", c.Rule(), d.YAML())
		}
	}
	text, err := problem.Written(&p.Recommended)
	if err != nil || !bytes.Contains(text, []byte("written")) && !bytes.Contains(text, []byte("Written")) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestPlansAreTheSameTwice(t *testing.T) {
	var prints [2]string
	for i := range prints {
		p := made(t, small)
		encoded, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		text := p.First().Text(0) + p.Text(80)
		var page bytes.Buffer
		if err := p.HTML(&page); err != nil {
			t.Fatal(err)
		}
		answers := p.answersText()
		if len(answers) < 3 || len(answers) < len(p.Answers) {
			t.Errorf("%q of %d answers", answers, len(p.Answers))
		}
		for _, answer := range answers {
			if !strings.Contains(html.UnescapeString(page.String()), answer) {
				t.Errorf("the page lacks %q", answer)
			}
		}
		for _, line := range strings.Split(text, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("a line of %d columns: %s", len([]rune(line)), line)
			}
		}
		if strings.Contains(page.String(), "http://") && !strings.Contains(page.String(), "http://www.w3.org") {
			t.Error("the page names another address")
		}
		prints[i] = string(encoded) + text + page.String()
	}
	if prints[0] != prints[1] {
		t.Error("two plans of one problem differ")
	}
}

// The built-in example is the one in examples/.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/plan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, Example) {
		t.Error("examples/plan.yaml is not predict/plan/example.yaml")
	}
}

// Equal lengths have no closed form: without a simulator nothing can be planned,
// and the error says so.
func TestWithoutATail(t *testing.T) {
	problem := problemOf(t, small, "modelled.length={kind: fixed, mean_tokens: 1000}")
	_, err := Make(&problem)
	if err == nil || !strings.Contains(err.Error(), "no closed form covers any") {
		t.Errorf("error %v", err)
	}
}
