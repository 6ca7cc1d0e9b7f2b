package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// shortLagRun is a lesson of a few steps.
func shortLagRun(t *testing.T, lag int, set ...string) study.LagRun {
	t.Helper()
	var overrides []config.Override
	for _, text := range append([]string{"environment.task=reverse", "environment.letters_max=4", "environment.held_out=32", "environment.supervised_steps=20",
		"train.batch=32", "rollout.group_size=8", "trainer.steps=8", "seed=5"}, set...) {
		overrides = append(overrides, config.Override{Text: text})
	}
	document, err := config.LoadWith("", overrides...)
	if err != nil {
		t.Fatal(err)
	}
	return study.LagRun{Document: document, WarmupRate: 1e-3, Lag: lag, EvaluateEvery: 4}
}

// Batch t is sampled by version max(0, t − lag), every token of it, and trained on by version t.
func TestLagRunLag(t *testing.T) {
	for _, lag := range []int{0, 1, 3, 20} {
		l := &lagRun{LagRun: shortLagRun(t, lag), weights: &newestWeights{}}
		if err := l.build(); err != nil {
			t.Fatal(err)
		}
		if err := l.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		for step := range l.Document.Trainer.Steps {
			if err := l.serve(t.Context(), loop.Version(step)); err != nil {
				t.Fatal(err)
			}
			if err := l.sample(t.Context(), step); err != nil {
				t.Fatal(err)
			}
			batch := l.next(step)
			want := loop.Version(max(0, step-lag))
			if batch.Version != loop.Version(step) || len(batch.Groups) != 4 {
				t.Fatalf("lag %d: step %d trains %d groups from version %d", lag, step, len(batch.Groups), batch.Version)
			}
			for g := range batch.Groups {
				if id := batch.Groups[g].ID; id != loop.GroupID(4*step+g+1) || batch.Groups[g].StartVersion != want {
					t.Fatalf("lag %d: step %d has group %d of version %d, want %d", lag, step, id, batch.Groups[g].StartVersion, want)
				}
				for _, s := range batch.Groups[g].Samples {
					for k, mark := range s.LossMask {
						if mark == 1 && s.Versions[k] != want {
							t.Fatalf("lag %d: step %d has a token of version %d, want %d", lag, step, s.Versions[k], want)
						}
					}
				}
			}
			report, err := l.trainer.Train(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			if fresh := want == loop.Version(step); fresh != (math.Abs(report.MeanLogRatio) < 1e-6) {
				t.Errorf("lag %d: step %d, sampled by version %d, has a mean log-ratio of %g", lag, step, want, report.MeanLogRatio)
			}
		}
		if len(l.ahead) != 0 {
			t.Errorf("lag %d: %d batches are left", lag, len(l.ahead))
		}
		l.engine.Close()
	}
}

// The same lesson twice is the same; without lag a correction changes nothing but roundings; all
// lessons of a seed begin with the same policy, whatever their learning rate.
func TestLagRunRepeats(t *testing.T) {
	run := func(lag int, set ...string) study.Learned {
		l := shortLagRun(t, lag, set...)
		if lag == 0 {
			l.DriftEvery = 4
		}
		out, err := teach(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := run(2)
	if again := run(2); !reflect.DeepEqual(first, again) {
		t.Errorf("the same lesson came to\n%+v\nand to\n%+v", first, again)
	}
	if len(first.Curve) != 3 || first.Curve[2].Step != 8 || first.Curve[1].KL <= 0 || first.Curve[1].ClipPredicted <= 0 || first.Curve[1].Reward <= 0 {
		t.Errorf("the curve is %+v", first.Curve)
	}
	clip, none := run(0), run(0, "trainer.correction.kind=none")
	for i, p := range clip.Curve {
		q := none.Curve[i]
		if i == 0 && p == q {
			continue
		}
		if math.Abs(p.Reward-q.Reward) > 1e-3 || math.Abs(p.GradientNorm-q.GradientNorm) > 1e-3*(1+p.GradientNorm) || p.ClipFraction != 0 || p.EffectiveSample < 0.9999 {
			t.Errorf("without lag, clipped %+v, not clipped %+v", p, q)
		}
	}
	if d := clip.Drift; len(d) != 3 || d[0].Lag != 1 || d[2].Lag != 4 || !(d[1].KL > d[0].KL && d[0].KL > 0) || d[0].Tokens == 0 || !(d[1].SamplePredicted < 1) {
		t.Errorf("drift %+v", d)
	}
	if slow := run(0, "trainer.learning_rate=1e-4"); slow.Curve[0] != clip.Curve[0] || slow.Curve[2] == clip.Curve[2] {
		t.Errorf("at another learning rate the lesson begins with %+v, want %+v, and ends with %+v", slow.Curve[0], clip.Curve[0], slow.Curve[2])
	}
}

// A gradient that is no number ends the lesson with what it had; a lesson that is cancelled says so.
func TestLagRunBreaks(t *testing.T) {
	lessonOf := func() *lagRun {
		l := &lagRun{LagRun: shortLagRun(t, 6), weights: &newestWeights{}}
		if err := l.build(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.engine.Close() })
		return l
	}
	// The environment of a verifier that answers with no number, from batch 5 on.
	l := lessonOf()
	l.environment = noNumber{l.environment, loop.GroupID(4*5 + 1)}
	out, err := l.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.Broke, "step 5: ") || len(out.Curve) != 2 {
		t.Errorf("broke %q after %d points, want step 5 and the points of steps 0 and 4", out.Broke, len(out.Curve))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out, err := teach(ctx, shortLagRun(t, 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, %+v", err, out)
	}
}

// noNumber is an environment whose rewards are none from a group on: a fault.
type noNumber struct {
	port.Environment
	from loop.GroupID
}

func (e noNumber) Play(ctx context.Context, task port.RolloutRequest, sampler port.Sampler) (port.Sample, error) {
	s, err := e.Environment.Play(ctx, task, sampler)
	if task.ID.Group >= e.from {
		s.Reward = float32(math.Inf(1))
	}
	return s, err
}

// The command writes its files, the same whatever the cores, and goes on from what it kept.
func TestStudyStaleness(t *testing.T) {
	dir := t.TempDir()
	arguments := []string{"study", "staleness", "--quick", "--lags", "1", "--corrections", "none,dppo", "--seeds", "1"}
	code, _, stderr := typed(t, append(arguments, "--out", dir)...)
	if code != failure.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, name := range []string{"staleness.md", "staleness.html", "staleness.csv", "staleness.json", "staleness-reverse.jsonl"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	code, out, stderr := typed(t, append(arguments, "--json")...)
	if code != failure.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var document, written struct {
		Command string
		Options struct {
			Lags []int `json:"lags"`
		} `json:"options"`
		Arms []struct {
			Name  string `json:"name"`
			Runs  int    `json:"runs"`
			Curve []any  `json:"curve"`
		} `json:"arms"`
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "staleness.json"))
	if err != nil || json.Unmarshal(text, &written) != nil || !reflect.DeepEqual(document, written) {
		t.Errorf("%v: learned anew it is another study", err)
	}
	if len(document.Arms) != 3 || document.Arms[0].Name != "lag 0, on-policy" || document.Arms[2].Runs != 1 || len(document.Arms[2].Curve) != 4 || document.Options.Lags[0] != 0 {
		t.Errorf("arms %+v", document.Arms)
	}
	kept := filepath.Join(dir, "staleness-reverse.jsonl")
	lines, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(lines), "\n")
	if err := os.WriteFile(kept, []byte("{\"program\":\"an older headway\"}\n"+rest), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := typed(t, append(arguments, "--out", dir)...); code != failure.ExitUsage || !strings.Contains(stderr, "--trust-kept") {
		t.Errorf("runs of another program: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := typed(t, append(arguments, "--out", dir, "--trust-kept")...); code != failure.ExitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "staleness.md")); err != nil || !strings.Contains(string(page), "runs begun by an older headway") {
		t.Errorf("%v: the page does not say who made its runs", err)
	}
	if now, err := os.ReadFile(kept); err != nil || string(now) != "{\"program\":\"an older headway\"}\n"+rest {
		t.Error("what was kept is learned anew")
	}
}

func TestStudyStalenessRefuses(t *testing.T) {
	for want, arguments := range map[string][]string{
		"--task chess":      {"--task", "chess"},
		"--corrections gae": {"--corrections", "gae"},
		"--lags [-1]":       {"--lags=-1"},
		"0 to 256":          {"--lags", "1000"},
		"--seeds 0":         {"--seeds", "0"},
		"--wall":            {"--live", "--wall", "0"},
		"--out":             {"--out", "/dev/null/x"},
	} {
		if code, _, stderr := typed(t, append([]string{"study", "staleness"}, arguments...)...); code != failure.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want 2 and %q: %s", arguments, code, want, stderr)
		}
	}
}
