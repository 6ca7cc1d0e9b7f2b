package plan

import (
	"testing"

	"github.com/headway-rl/headway/config"
)

// problemOf builds a problem from a document without simulation.
func problemOf(t testing.TB, text string, overrides ...string) Problem {
	t.Helper()
	raw, err := config.Parse("plan.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = raw.Set(overrides...); err != nil {
		t.Fatal(err)
	}
	document, err := raw.Resolve()
	if err == nil {
		document, err = document.ForPlan()
	}
	if err != nil {
		t.Fatal(err)
	}
	lengths, err := document.LengthModel()
	if err != nil {
		t.Fatal(err)
	}
	raw, document, teacher, err := WithTeacher(raw, document, lengths)
	if err != nil {
		t.Fatal(err)
	}
	environment, err := document.EnvironmentTimes()
	if err != nil {
		t.Fatal(err)
	}
	machine, err := NewMachine(document, lengths)
	if err != nil {
		t.Fatal(err)
	}
	return Problem{Document: document, Raw: raw, Machine: machine, Teacher: teacher, Lengths: lengths, Environment: environment}
}

// BenchmarkRank ranks about 10^5 settings by closed form.
func BenchmarkRank(b *testing.B) {
	p := problemOf(b, string(Example), "hardware.gpus=64", "search.queue_factor=[1, 1.25, 1.5, 2, 2.5, 3]")
	eval, err := newEvaluator(&p)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		g, err := newGrid(&p, limitsOf(&p))
		if err != nil {
			b.Fatal(err)
		}
		list, err := eval.rankGrid(&g)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(list)), "settings")
	}
}
