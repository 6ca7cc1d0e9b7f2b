package steps

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A verdict is read of a step's metrics. A cause that is not known, or none, is unknown.
func TestForward(t *testing.T) {
	for name, test := range map[string]struct {
		metrics map[string]float64
		judged  bool
		says    string
	}{
		"nothing":        {nil, false, ""},
		"not judged":     {map[string]float64{"forward/difference": 0.3, "loss": 1}, false, ""},
		"agrees":         {map[string]float64{"forward/agrees": 1, "forward/difference": 2e-7, "forward/cause/cut": 1}, true, "the trainer's log-probs are the engines' at version 4 (2e-07 nats apart)"},
		"disagrees":      {map[string]float64{"forward/agrees": 0, "forward/difference": 0.35, "forward/cause/temperature": 1}, true, "are 0.35 nats off the engines' at version 4. Likely temperature: divide"},
		"no cause":       {map[string]float64{"forward/agrees": 0, "forward/difference": 0.35}, true, "Likely unknown: look"},
		"unheard cause":  {map[string]float64{"forward/agrees": 0, "forward/cause/\x1b[31m": 1}, true, "Likely unknown: look"},
		"cause of value": {map[string]float64{"forward/agrees": 0, "forward/cause/cut": 0, "forward/cause/template": 1}, true, "Likely template: the"},
	} {
		line := Line{Step: 5, Metrics: test.metrics}
		f, judged := line.Forward()
		if judged != test.judged || judged && !strings.Contains(f.String(), test.says) {
			t.Errorf("%s: %v, %q", name, judged, f)
		}
	}
}

// A cause that a pattern told is kept over batches that show none, and gives way to another, and to agreement.
func TestForwardAfter(t *testing.T) {
	named := func(name string) Forward {
		return Forward{Cause: Causes[slices.IndexFunc(Causes, func(c Cause) bool { return c.Name == name })]}
	}
	var before *Forward
	for step, test := range []struct {
		found Forward
		want  string
	}{{named("weights"), "weights"}, {named("positions"), "positions"}, {named("unknown"), "positions"}, {named("cut"), "cut"}, {Forward{Agrees: true}, ""}, {named("precision"), "precision"}} {
		f := test.found.After(before)
		if f.Cause.Name != test.want {
			t.Errorf("step %d: %q, want %q", step, f.Cause.Name, test.want)
		}
		before = &f
	}
}

// The Python client names the same causes in the same order.
func TestCausesAreTheClients(t *testing.T) {
	text, err := os.ReadFile("../../clients/python/src/headway/agreement.py")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "CAUSES: ")
	table, _, _ = strings.Cut(table, "\n}")
	var theirs, ours []string
	for _, found := range regexp.MustCompile(`(?m)^    "(\w+)": `).FindAllStringSubmatch(table, -1) {
		theirs = append(theirs, found[1])
	}
	for _, c := range Causes {
		ours = append(ours, c.Name)
	}
	if !slices.Equal(theirs, ours) {
		t.Errorf("the client's causes are %q, ours %q", theirs, ours)
	}
}
