package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/reproduce"
)

func TestReproducePrintsTheCases(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	code, stdout, stderr := headway(t, "reproduce", "--quick", "queue_factor", "tail_subsets", "--html", page)
	if code != failure.ExitDone {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	for _, want := range []string{"queue_factor", "tail_subsets", "Quick:", "not computable: decode speed and mean length", "the printed predicted_iqs is 1.93"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Contains(stdout, "validation_runs:") || !strings.Contains(stderr, "simulating queue_factor") {
		t.Errorf("cases that were not asked for, or no progress:\n%s", stderr)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "not computable") {
		t.Errorf("the page lacks its table: %v", err)
	}
}

// The observations of the case studies, in simulation.
func TestReproduceShowsTheObservations(t *testing.T) {
	code, stdout, stderr := headway(t, "reproduce", "case_studies", "--json", "--quick")
	if code != failure.ExitDone {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	var result struct {
		Cases []struct {
			Name       string
			Quantities []struct {
				Row, Name string
				Simulated struct{ Mean float64 }
			}
			Figures []struct {
				Name   string
				Curves []struct{ Y []float64 }
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || len(result.Cases) != 2 {
		t.Fatalf("%v, %d cases", err, len(result.Cases))
	}
	slime, agent := result.Cases[0], result.Cases[1]
	if wait := slime.Quantities[0].Simulated.Mean; wait < 0.5 || wait > 0.7 {
		t.Errorf("slime_swe: the trainer waits %g: the document's assumptions no longer are near the observed 0.6", wait)
	}
	for _, curve := range slime.Figures[0].Curves {
		for _, step := range []int{5, 10, 15} {
			if curve.Y[step] < 128 {
				t.Errorf("slime_swe: %g rollouts buffered after step %d, want most of 256", curve.Y[step], step)
			}
		}
	}
	last := 0.0
	for _, q := range agent.Quantities {
		switch q.Name {
		case "trainer_idle_share":
			if q.Simulated.Mean < 0.3 || q.Simulated.Mean > 0.75 {
				t.Errorf("verl_uni_agent, %s: idle %g", q.Row, q.Simulated.Mean)
			}
		case "tail latency_s":
			if q.Simulated.Mean <= last {
				t.Errorf("verl_uni_agent, %s: tail latency %g after %g: more rollouts a replica take longer", q.Row, q.Simulated.Mean, last)
			}
			last = q.Simulated.Mean
		}
	}
	if last < 6000 || last > 11000 {
		t.Errorf("verl_uni_agent: tail latency %g s at 960 rollouts, observed 7500", last)
	}
}

func TestReproduceRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, test := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"reproduce", "validation"}, `did you mean "validation_runs"`},
		{[]string{"reproduce", "tail_subsets", "--html", "/no/such/folder/x.html"}, "--html"},
		{[]string{"reproduce", "--quik"}, "--quick"},
	} {
		code, stdout, stderr := headway(t, test.arguments...)
		if code != failure.ExitUsage || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("headway %q: code %d, stdout %q, stderr %q", test.arguments, code, stdout, stderr)
		}
	}
}

func TestReproduceListsItsCases(t *testing.T) {
	code, stdout, _ := headway(t, "reproduce", "--list")
	names, _ := reproduce.Names()
	for _, name := range names {
		if code != failure.ExitDone || !strings.Contains(stdout, name) {
			t.Errorf("code %d: the list lacks %q", code, name)
		}
	}
}

// docs/reproduce.md is what the command writes, as far as that is quickly done: the
// cases below, in full length, and a section for every other.
func TestReproduceDocumentIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../docs/reproduce.md")
	if err != nil {
		t.Fatal(err)
	}
	names, _ := reproduce.Names()
	for _, name := range names {
		if name != "figures" && !strings.Contains(string(text), "<!-- generated: "+name+" -->") {
			t.Errorf("docs/reproduce.md has no section on %s: headway reproduce --markdown docs/reproduce.md", name)
		}
	}
	result, err := reproduce.Run(t.Context(), reproduce.Options{Simulation: experiment.DevicesOf}, "batch_size", "queue_factor", "tail_subsets")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range result.Cases {
		if !strings.Contains(string(text), c.Markdown()) {
			t.Errorf("docs/reproduce.md is not current on %s: headway reproduce --markdown docs/reproduce.md", c.Name)
		}
	}
}
