package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/cockroachdb/datadriven"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
)

// predictLine runs `headway predict` with arguments, as main would bind it.
func predictLine(t *testing.T, arguments ...string) (stdout string, err error) {
	t.Helper()
	var root struct {
		Predict predictCmd `cmd:""`
	}
	parser, err := kong.New(&root, kong.Name("headway"))
	if err != nil {
		t.Fatal(err)
	}
	selected, err := parser.Parse(append([]string{"predict"}, arguments...))
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = selected.Run(&app.Process{Stdout: &out, Stderr: &bytes.Buffer{}, Getenv: func(string) string { return "" }, Now: time.Now, IsTerminal: func(any) bool { return false }})
	return out.String(), err
}

// TestPredict runs testdata/predict: one command line per case, with what it
// prints or why it is refused. A case's input is the document.
func TestPredict(t *testing.T) {
	skipShort(t)
	dir := t.TempDir()
	datadriven.RunTest(t, "testdata/predict", func(t *testing.T, d *datadriven.TestData) string {
		var arguments []string
		if d.Input != "" {
			path := filepath.Join(dir, "run.yaml")
			if err := os.WriteFile(path, []byte(d.Input), 0o600); err != nil {
				t.Fatal(err)
			}
			arguments = append(arguments, path)
		}
		for _, arg := range d.CmdArgs {
			text := "--" + arg.Key
			if len(arg.Vals) > 0 {
				text += "=" + strings.Join(arg.Vals, ",")
			}
			arguments = append(arguments, text)
		}
		out, err := predictLine(t, append(arguments, "--full")...)
		if err != nil {
			if code := command.ExitCode(err); code != failure.ExitUsage {
				t.Errorf("%v: exit code %d, want 2", err, code)
			}
			hint := ""
			var failed *failure.Error
			if errors.As(err, &failed) && failed.Hint != "" {
				hint = "hint: " + failed.Hint + "\n"
			}
			return fmt.Sprintf("refused: %s\n%s", strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""), hint)
		}
		return out
	})
}

// TestPredictJSON checks the keys that scripts rely on.
func TestPredictJSON(t *testing.T) {
	out, err := predictLine(t, "--concurrency=128", "--batch=128", "--utilization=1.3", "--queue-factor=2", "--tailness=50", "--cap-tokens=8080", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Regime    string
		PQS, IQS  float64
		Staleness struct{ Mean, P50, P95, P99 float64 }
		Period    struct {
			Relative float64 `json:"relative_to_step"`
		}
		Dominant string
		Levers   []struct {
			Change, Name string
			HoldsFixed   string  `json:"holds_fixed"`
			Mean         float64 `json:"staleness_mean"`
			Ratio        float64 `json:"period_ratio"`
		}
		Warnings []string
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if p.Regime != "train-bound" || p.Dominant != "pqs" || p.Period.Relative != 1 || p.Warnings == nil {
		t.Errorf("regime %q, dominant %q, period %g, warnings %v", p.Regime, p.Dominant, p.Period.Relative, p.Warnings)
	}
	if sum := p.PQS + p.IQS - p.Staleness.Mean; sum > 1e-9 || sum < -1e-9 || p.Staleness.P50 > p.Staleness.P95 || p.Staleness.P95 > p.Staleness.P99 {
		t.Errorf("pqs %g, iqs %g, staleness %+v", p.PQS, p.IQS, p.Staleness)
	}
	names := map[string]bool{}
	for _, lever := range p.Levers {
		names[lever.Name] = true
		if lever.Change == "" || lever.HoldsFixed == "" || lever.Mean <= 0 || lever.Ratio <= 0 {
			t.Errorf("lever %+v", lever)
		}
	}
	for _, name := range []string{"tail", "split", "batch", "queue factor", "concurrency"} {
		if !names[name] {
			t.Errorf("no lever %q", name)
		}
	}
}

// TestPredictRefusesPairs: flags that no run could have together are bad arguments.
func TestPredictRefusesPairs(t *testing.T) {
	base := []string{"predict", "--concurrency=128", "--group=8", "--utilization=1.07", "--tail-multiplier=1.44"}
	for want, flags := range map[string][]string{
		"not a whole number of groups":    {"--batch=13"},
		"needs a staleness budget":        {"--batch=128", "--policy=max"},
		"the budget of --policy max, and": {"--batch=128", "--max-staleness=3"},
	} {
		var out, problems strings.Builder
		if code := Main(append(slices.Clone(base), flags...), strings.NewReader(""), &out, &problems); code != failure.ExitUsage {
			t.Errorf("%v: exit code %d, want %d", flags, code, failure.ExitUsage)
		}
		if !strings.Contains(problems.String(), want) {
			t.Errorf("%v: %q lacks %q", flags, problems.String(), want)
		}
	}
}
