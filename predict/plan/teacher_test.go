package plan

import (
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
)

// A plan counts the teacher's servers: as many as score what the run makes and one server's prefill by the roofline,
// with room for chance. Each holds the teacher's weights.
func TestTeachersAreCounted(t *testing.T) {
	problem := problemOf(t, small, "hardware.teacher=qwen3-32b")
	p := made(t, small, "hardware.teacher=qwen3-32b")
	a := answered(p, "teachers")
	f := p.Recommended.Best()
	rate := float64(p.Recommended.BatchRollouts) / f.PeriodS / (1 - f.WasteShare)
	// 2·32e9 FLOPs a token at half of an H100's 989e12 on one or two GPUs; 512 tokens of prompt, some 2,000 of response.
	gpus := float64(problem.Teacher.GPUs)
	scoreS := problem.Document.ScoreMeanS(problem.Lengths.Mean())
	if want := 2 * 32e9 * (512 + problem.Lengths.Mean()) / (0.5 * 989e12 * gpus); math.Abs(scoreS/want-1) > 0.1 {
		t.Errorf("a score takes %.3g s, the roofline has %.3g", scoreS, want)
	}
	servers := a.Value / gpus
	if servers != math.Floor(servers) || servers < rate*scoreS || servers > math.Ceil(rate*scoreS+3*math.Sqrt(rate*scoreS)+1) {
		t.Errorf("%+v: %g servers for %.3g scores at once", a, servers, rate*scoreS)
	}
	if !strings.Contains(p.First().Text(80), "eachers:") {
		t.Errorf("the answer is not printed:\n%s", p.First().Text(80))
	}
	if a := answered(made(t, small, "hardware.teacher=qwen3-235b-a22b"), "teachers"); a.Value < 8 || math.Mod(a.Value, 8) != 0 {
		t.Errorf("%+v: want whole servers of 8 GPUs", a)
	}
	large := problemOf(t, small, "hardware.teacher=qwen3-235b-a22b")
	if large.Teacher.GPUs < 8 || large.Machine.GPUs != problem.Machine.GPUs {
		t.Errorf("235e9 parameters on %d GPUs, %d for the run", large.Teacher.GPUs, large.Machine.GPUs)
	}
}

// The written document has the scorers, a document's own speed comes before the roofline, and none asks for nothing.
func TestScorersOfTheDocument(t *testing.T) {
	problem := problemOf(t, small, "hardware.teacher=qwen3-32b")
	p := made(t, small, "hardware.teacher=qwen3-32b")
	d, err := problem.DocumentOf(&p.Recommended)
	if err != nil {
		t.Fatal(err)
	}
	if s := d.Modelled.Scorer; s.TokensPerS < 1000 || s.Time.MeanS <= 0 || s.Concurrency != 0 {
		t.Errorf("%+v", s)
	}
	given := problemOf(t, small, "hardware.teacher=qwen3-32b", "modelled.scorer={time: {mean_s: 3}}")
	if s := given.Document.Modelled.Scorer; s.TokensPerS != 0 || s.Time.MeanS != 3 || given.Teacher.GPUs != problem.Teacher.GPUs {
		t.Errorf("%+v of %+v", s, given.Teacher)
	}
	if a := answered(made(t, small, "modelled.scorer={time: {mean_s: 30}}"), "teachers"); a.Unit != "scores at once" || a.Value < 30 {
		t.Errorf("%+v", a)
	}
	if a := answered(made(t, small), "teachers"); a.Question != "" {
		t.Errorf("teachers without one: %+v", a)
	}
}

// A teacher that nobody knows, or without a GPU to run on, is refused by its key.
func TestUnknownTeacher(t *testing.T) {
	for name, change := range map[string][2]string{
		"is not known":     {"qwen3-9000b", "h100-sxm"},
		"does not name":    {"qwen3-32b", "null"},
		"hardware.teacher": {"x", "h100-sxm"},
	} {
		raw, err := config.Parse("plan.yaml", []byte(small))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = raw.Set("hardware.teacher="+change[0], "hardware.gpu="+change[1]); err != nil {
			t.Fatal(err)
		}
		d, err := raw.Resolve()
		if err == nil {
			d, err = d.ForPlan()
		}
		if err != nil {
			t.Fatal(err)
		}
		lengths, err := d.LengthModel()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err = WithTeacher(raw, d, lengths); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", change, err)
		}
	}
}
