package study

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop/workload"
)

// virtualRig makes the frontier's runs on the simulator's clock: lengths are drawn anew for every run, by seeds that no
// prediction sees, and rates are as the document sets them.
type virtualRig struct {
	t    *testing.T
	made []string
	end  func(split string) error // nil for no end
}

// draw returns groups of geometric lengths cut at 65, as those of a policy that ends a response anywhere.
func drawLengths(seed uint64, groups int) [][]int {
	rng := rand.New(rand.NewPCG(seed, 7))
	out := make([][]int, groups)
	for g := range out {
		for range frontierGroup {
			out[g] = append(out[g], min(1+int(math.Log(1-rng.Float64())/math.Log(1-1.0/29)), frontierLetters+1))
		}
	}
	return out
}

func (v *virtualRig) rig() FrontierRig {
	return FrontierRig{
		Lengths: func(_ context.Context, document config.Config, groups int) ([][]int, error) {
			if document.Engines[0].DecodeStepS != 0 {
				v.t.Error("lengths are measured at the devices' pace, which is slow")
			}
			return drawLengths(document.Seed, groups), nil
		},
		Run: v.run,
	}
}

func (v *virtualRig) run(_ context.Context, document config.Config, warmup int, foretell func(FrontierRates) (any, error), made func(int)) (FrontierLived, error) {
	split := Split{len(document.Engines), 4 - len(document.Engines)}.String()
	rates := FrontierRates{TokenS: document.Engines[0].DecodeStepS, GapS: document.Engines[0].DecodeStepS, StepS: document.Trainer.StepS, Rollouts: 1, Steps: 1}
	if _, err := foretell(rates); err != nil {
		return FrontierLived{}, err
	}
	v.made = append(v.made, split)
	if v.end != nil {
		if err := v.end(split); err != nil {
			return FrontierLived{}, err
		}
	}
	model, err := newFrontierModel(drawLengths(1000+document.Seed, 3000), rates.GapS)
	if err != nil {
		return FrontierLived{}, err
	}
	cfg := sim.Config{Loop: document.LoopConfig(), Work: sim.NewModelled(99, model.lengths, model.gap, acceptAll(v.t), int64(1e9*rates.StepS)),
		NSPerToken: 1e9 * rates.TokenS, Warmup: warmup, Measured: document.Trainer.Steps - warmup}
	res, err := sim.Run(cfg)
	made(document.Trainer.Steps)
	return FrontierLived{Summary: res.Summary, Closed: FrontierFigures{PeriodS: math.NaN(), Staleness: math.NaN()}}, err
}

func frontierOptions() FrontierOptions {
	return FrontierOptions{Splits: Splits(4), Seeds: 2, FrontierSettings: FrontierSettings{
		Devices: 4, SlotsPerDevice: 32, DecodeStepS: 0.01, SpeedRatio: 1, QueueFactor: 1, Warmup: 20, Steps: 400, ProbeGroups: 1000, SimulatedSteps: 800}}
}

// A split's document has its devices' slots and pace, and a train step in proportion to the mean length.
func TestFrontierDocument(t *testing.T) {
	s := frontierOptions().FrontierSettings
	if s.RolloutTokensPerS() != 3200 || s.StepS(2, 25) != 0.25 {
		t.Errorf("c_R %g, t_step %g, want 3200 tokens/s and 64 · 25 / (2 · 3200) = 0.25 s", s.RolloutTokensPerS(), s.StepS(2, 25))
	}
	d, err := s.Document(Split{3, 1}, 5, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Engines) != 3 || d.Rollout.Concurrency != 96 || d.Engines[2].Slots != 32 || d.Engines[2].DecodeStepS != 0.01 {
		t.Errorf("%d engines, C %d, the last %+v; want 3 of 32 slots at 10 ms", len(d.Engines), d.Rollout.Concurrency, d.Engines[len(d.Engines)-1])
	}
	if d.Seed != 5 || d.Trainer.StepS != 0.5 || d.Trainer.Steps != 420 || d.QueueGroups() != 8 {
		t.Errorf("seed %d, step %g s, %d steps, a queue of %d groups", d.Seed, d.Trainer.StepS, d.Trainer.Steps, d.QueueGroups())
	}
}

// The study predicts a run before it is made, writes the prediction down first, and finds loops of the same rules
// on other lengths of the same policy within its tolerance.
func TestFrontierForetells(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frontier.jsonl")
	opt := frontierOptions()
	kept, err := OpenFrontier(path, "test", opt.FrontierSettings)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Frontier(t.Context(), opt, (&virtualRig{t: t}).rig(), kept, FrontierSaid{})
	if err = errors.Join(err, kept.Close()); err != nil {
		t.Fatal(err)
	}
	if r.Agree != 3 || len(r.Runs) != 6 {
		t.Errorf("%s; %d runs", r.Verdict(), len(r.Runs))
	}
	for i, row := range r.Rows {
		if !row.OfSimulated.within(0.05) {
			t.Errorf("split %v is %+v from its simulation, with the same rules, rates and policy", row.Split, row.OfSimulated)
		}
		if i > 0 && row.Utilization.Mean <= r.Rows[i-1].Utilization.Mean {
			t.Errorf("ρ does not rise with the rollout devices: %v", r.Rows)
		}
	}
	if mid := r.Rows[1].Period.Live.Mean; mid >= r.Rows[0].Period.Live.Mean || mid >= r.Rows[2].Period.Live.Mean {
		t.Errorf("the period is not least where ρ is nearest 1: %+v", r.Rows)
	}
	// Every line that has a run comes after that of its prediction, whose digest is its own.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	foretold := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var l frontierLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if p := l.Prediction; p != nil {
			said := p.SHA256
			again := *p
			again.SHA256 = ""
			plain, err := json.Marshal(again)
			if err != nil || digest(plain) != said {
				t.Errorf("the digest of the prediction for %v is not its own: %v", p.Split, err)
			}
			foretold[said] = true
		}
		if l.Run != nil && !foretold[l.Run.Prediction.SHA256] {
			t.Errorf("the run of split %v stands before its prediction", l.Run.Split)
		}
	}
	if len(foretold) != 6 {
		t.Errorf("%d predictions, want 6", len(foretold))
	}
	frontierCurvesMeet(t, r)
	frontierPrints(t, r)
}

// frontierCurvesMeet holds the curves to the predictions of whole splits, which are made from one seed's lengths each.
func frontierCurvesMeet(t *testing.T, r FrontierResult) {
	for _, row := range r.Rows {
		for i, n := range r.Predicted.RolloutDevices {
			if math.Abs(n-float64(row.Split.Rollout)) > 1e-9 {
				continue
			}
			if p, s := r.Predicted.PeriodS[i]/row.Period.Predicted.Mean-1, r.Predicted.Staleness[i]/row.Staleness.Predicted.Mean-1; math.Abs(p) > 0.02 || math.Abs(s) > 0.02 {
				t.Errorf("split %v: the predicted curve is %.3f and %.3f from the predictions", row.Split, p, s)
			}
		}
	}
	if n := len(r.Simulated.RolloutDevices); n != 9 || len(r.Predicted.PeriodS) != 41 {
		t.Errorf("curves of %d and %d points, want 9 and 41", n, len(r.Predicted.PeriodS))
	}
}

// frontierPrints reads every form that the study is printed in.
func frontierPrints(t *testing.T, r FrontierResult) {
	var text, page, document, table bytes.Buffer
	from := Provenance{Command: "go run ./cmd/lab study frontier", Program: "test"}
	if err := errors.Join(r.WriteText(&text), FrontierHTML(&page, r, from), FrontierMarkdown(&document, r, from), FrontierCSV(&table, r)); err != nil {
		t.Fatal(err)
	}
	for name, printed := range map[string]string{"text": text.String(), "page": page.String(), "document": document.String()} {
		for _, want := range []string{"1:3", "2:2", "3:1", "at 3 of 3 splits"} {
			if !strings.Contains(printed, want) {
				t.Errorf("the %s lacks %q", name, want)
			}
		}
	}
	if !strings.Contains(page.String(), "<svg") || strings.Contains(page.String(), "http://") && !strings.Contains(page.String(), "http://www.w3.org") {
		t.Error("the page has no picture, or needs something from elsewhere")
	}
	lines, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(lines) != 7 {
		t.Fatalf("%d lines of CSV, want a header and 6 runs: %v", len(lines), err)
	}
	for i, name := range lines[0] {
		if lines[1][i] == "" && !strings.HasPrefix(name, "closed_form") {
			t.Errorf("%s is empty in %v", name, lines[1])
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Errorf("the result has no JSON: %v", err)
	}
}

// A study that was broken off goes on with the runs that it lacks, from the same lengths.
func TestFrontierGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frontier.jsonl")
	opt := frontierOptions()
	opt.Seeds, opt.Steps, opt.SimulatedSteps = 1, 50, 100
	open := func() *FrontierKept {
		kept, err := OpenFrontier(path, "test", opt.FrontierSettings)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	whole, err := Frontier(t.Context(), opt, (&virtualRig{t: t}).rig(), nil, FrontierSaid{})
	if err != nil {
		t.Fatal(err)
	}
	kept := open()
	broken := &virtualRig{t: t, end: func(split string) error {
		if split == "2:2" {
			return context.Canceled
		}
		return nil
	}}
	if _, err := Frontier(t.Context(), opt, broken.rig(), kept, FrontierSaid{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that of the run", err)
	}
	_ = kept.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, `{"run":{"spl`...), 0o600); err != nil { // torn
		t.Fatal(err)
	}
	kept = open()
	v := &virtualRig{t: t}
	again := v.rig()
	again.Lengths = nil // they are kept
	r, err := Frontier(t.Context(), opt, again, kept, FrontierSaid{})
	if err = errors.Join(err, kept.Close()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"2:2", "3:1"}; !reflect.DeepEqual(v.made, want) {
		t.Errorf("it made the runs %v, want %v", v.made, want)
	}
	for i := range r.Runs {
		if r.Runs[i].Live != whole.Runs[i].Live || r.Runs[i].Prediction.SHA256 != whole.Runs[i].Prediction.SHA256 {
			t.Errorf("run %d differs from that of a study that was not broken off: %+v, %+v", i, r.Runs[i], whole.Runs[i])
		}
	}
	if _, err := OpenFrontier(path, "another", opt.FrontierSettings); !errors.Is(err, ErrOtherProgram) {
		t.Errorf("a file of another program: %v", err)
	}
	opt.Steps++
	if _, err := OpenFrontier(path, "test", opt.FrontierSettings); !errors.Is(err, ErrOtherSettings) {
		t.Errorf("a file of other settings: %v", err)
	}
}

// What puts the figures in doubt is said before them.
func TestFrontierDoubts(t *testing.T) {
	run := FrontierRun{Split: Split{1, 1}, Seed: 1, Live: FrontierFigures{1, 2}, Mismatch: 0.02, Pace: FrontierPace{DecodeLate: 0.4, TrainSlowdown: 0.3},
		Prediction: FrontierPrediction{Theory: FrontierFigures{1, 4}}}
	r := FrontierResult{Seeds: 1, Quick: true, Splits: []Split{{1, 1}}, Runs: []FrontierRun{run}}
	r.Rows = []FrontierRow{r.row(Split{1, 1})}
	all := strings.Join(r.Doubts(), "\n")
	for _, want := range []string{"no result", "One seed", "40.0 %", "30.0 % longer", "Little's identity is off by 2.0 %"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q lacks %q", all, want)
		}
	}
	if verdict := r.Verdict(); !strings.Contains(verdict, "at 0 of 1 splits; not at 1:1 (period +0.0 %, staleness -50.0 %)") {
		t.Errorf("the verdict is %q", verdict)
	}
}

func acceptAll(t *testing.T) workload.Acceptance {
	t.Helper()
	all, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
