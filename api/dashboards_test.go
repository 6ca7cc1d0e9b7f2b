package api

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// exported are the names that a control plane exports, with the labels of those that are figures.
func exported() map[string][]string {
	names := map[string][]string{"up": {"job"}}
	for _, f := range figures {
		names[f.name] = f.labels
	}
	for _, suffix := range []string{"_sum", "_count", "_bucket"} {
		names["headway_sync_phase_seconds"+suffix] = []string{"phase", "le"}
	}
	return names
}

var (
	selector = regexp.MustCompile(`\b((?:headway|fully_async|rollouter|trainer|timing_s)_\w+|up)\b(?:\{([^}]*)\})?`)
	label    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
)

// checkExpression holds the metrics and labels of an expression to what is exported.
func checkExpression(t *testing.T, where, expression string) (found int) {
	t.Helper()
	names := exported()
	for _, use := range selector.FindAllStringSubmatch(expression, -1) {
		labels, known := names[use[1]]
		if !known {
			t.Errorf("%s asks for %s, which is not exported: %s", where, use[1], expression)
			continue
		}
		found++
		for _, l := range label.FindAllStringSubmatch(use[2], -1) {
			if l[1] != "instance" && !strings.Contains(" "+strings.Join(labels, " ")+" ", " "+l[1]+" ") {
				t.Errorf("%s selects %s by the label %s, which it has not: %s", where, use[1], l[1], expression)
			}
		}
	}
	return found
}

func TestAlertsAskForWhatIsExported(t *testing.T) {
	text, err := os.ReadFile("../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Groups) == 0 || len(file.Groups[0].Rules) < 5 {
		t.Fatalf("%+v, %v", file, err)
	}
	for _, r := range file.Groups[0].Rules {
		if checkExpression(t, r.Alert, r.Expr) == 0 {
			t.Errorf("%s asks for nothing", r.Alert)
		}
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s does not say how bad it is, what it is and what to do: %+v", r.Alert, r)
		}
	}
}

func TestGrafanaAsksForWhatIsExported(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/headway.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	if board.Panels[0].Title != "Queue health: what enters, what leaves" {
		t.Errorf("the first panel is %q, want queue health", board.Panels[0].Title)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := cells[cell]; other != "" || cell[0] > 23 {
					t.Fatalf("%s lies over %q or beyond the grid", p.Title, other)
				}
				cells[cell] = p.Title
			}
		}
		for _, target := range p.Targets {
			if checkExpression(t, p.Title, target.Expr) == 0 {
				t.Errorf("%s asks for nothing: %s", p.Title, target.Expr)
			}
		}
	}
}

func TestExpressionsThatAskForNothingAreSeen(t *testing.T) {
	for expression, want := range map[string]int{`headway_queue_groups{instance="a"} / up{job="x"}`: 2, `headway_staleness_versions{statistic="mean"} > 8`: 1, `vector(1)`: 0} {
		if got := checkExpression(t, "test", expression); got != want {
			t.Errorf("%d metrics found in %s, want %d", got, expression, want)
		}
	}
}
