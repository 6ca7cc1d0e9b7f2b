package paired

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInterval(t *testing.T) {
	mean, half := Interval([]float64{1, 2, 3, 4})
	// t of 3 degrees of freedom is 3.182446, the standard deviation √(5/3).
	if want := 3.182446 * math.Sqrt(5.0/3) / 2; mean != 2.5 || math.Abs(half-want) > 1e-5 {
		t.Errorf("%g ± %g, want 2.5 ± %g", mean, half, want)
	}
	if _, half := Interval([]float64{1}); !math.IsInf(half, 1) {
		t.Errorf("one value has an interval of ± %g", half)
	}
}

// Sides are measured as old, new, new, old, and the first round is not counted.
func TestCompareOrder(t *testing.T) {
	var order strings.Builder
	ratios, err := Compare("A", "B", 2, func(side string, round int) ([]float64, error) {
		order.WriteString(side)
		if round == 0 {
			return []float64{1000, 1}, nil
		}
		return map[string][]float64{"A": {2, 1}, "B": {3, 0.5}}[side], nil
	})
	if err != nil || order.String() != "ABBAABBAABBA" {
		t.Fatalf("%v, in the order %s", err, order.String())
	}
	for k, want := range []float64{1.5, 0.5} {
		if r := ratios[k]; math.Abs(r.Mean-want) > 1e-12 || math.Abs(r.Low-want) > 1e-12 || math.Abs(r.High-want) > 1e-12 || !r.Differs() {
			t.Errorf("figure %d: %v, want exactly %g", k, r, want)
		}
	}
}

// A machine whose speed drifts at a steady rate does not look like a difference.
func TestCompareDrift(t *testing.T) {
	at := 0.0
	ratios, err := Compare(1.0, 1.1, 3, func(side float64, _ int) ([]float64, error) {
		at++
		return []float64{side * math.Exp(-0.2*at)}, nil
	})
	if err != nil || math.Abs(ratios[0].Mean-1.1) > 1e-12 {
		t.Errorf("%v, %v: want 1.1", ratios, err)
	}
}

// The interval has the true ratio in 95 of 100 experiments.
func TestCompareCoverage(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	const experiments = 2000
	held := 0
	for range experiments {
		ratios, err := Compare(1.0, 1.05, 4, func(side float64, _ int) ([]float64, error) {
			return []float64{side * math.Exp(0.1*noise.NormFloat64())}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if ratios[0].Low <= 1.05 && 1.05 <= ratios[0].High {
			held++
		}
	}
	if share := float64(held) / experiments; share < 0.935 || share > 0.965 {
		t.Errorf("the interval has the true ratio in %.3f of the experiments", share)
	}
}

func TestCompareRefuses(t *testing.T) {
	figure := func(value float64, err error) func(int, int) ([]float64, error) {
		return func(int, int) ([]float64, error) { return []float64{value}, err }
	}
	for name, c := range map[string]struct {
		rounds  int
		measure func(int, int) ([]float64, error)
	}{
		"one round": {1, figure(1, nil)}, "a zero": {2, figure(0, nil)}, "no number": {2, figure(math.NaN(), nil)},
		"a failure": {2, figure(1, errors.New("broken"))},
	} {
		if ratios, err := Compare(0, 1, c.rounds, c.measure); err == nil {
			t.Errorf("%s: %v without an error", name, ratios)
		}
	}
}

// repository makes a repository whose program prints a word, in the test's current folder.
func repository(t *testing.T) (write func(name, text string)) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		t.Setenv(name, "")
		_ = os.Unsetenv(name)
	}
	write = func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/a\n\ngo 1.24\n")
	write("cmd/headway/main.go", "package main\n\nfunc main() { println(1) }\n")
	for _, arguments := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "a"}} {
		if _, err := git(arguments...); err != nil {
			t.Fatal(err)
		}
	}
	return write
}

func TestBuild(t *testing.T) {
	write := repository(t)
	if _, _, err := Build("no-such"); err == nil || !strings.Contains(err.Error(), "no-such") || !strings.Contains(err.Error(), "no such commit") {
		t.Errorf("an unknown commit: %v", err)
	}
	same := func() bool {
		sides, remove, err := Build("HEAD")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			remove()
			if list, _ := git("worktree", "list"); strings.Contains(list, "\n") {
				t.Errorf("a worktree is left:\n%s", list)
			}
			if _, err := os.Stat(sides.Old.Program); err == nil {
				t.Error("a program is left")
			}
		}()
		older, err1 := os.ReadFile(sides.Old.Program)
		newer, err2 := os.ReadFile(sides.New.Program)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		changed := strings.Contains(sides.New.Name, "1 files changed and not committed")
		if equal := string(older) == string(newer); changed == equal || strings.Contains(sides.Old.Name, "changed") {
			t.Errorf("%q and %q: equal programs %v", sides.Old.Name, sides.New.Name, equal)
		}
		return !changed
	}
	if !same() {
		t.Error("a clean tree counts as changed")
	}
	write("cmd/headway/main.go", "package main\n\nfunc main() { println(22) }\n")
	if same() {
		t.Error("a changed tree counts as clean")
	}
	write("cmd/headway/main.go", "package main\n\nfunc main() { broken }\n")
	if _, _, err := Build("HEAD"); err == nil || !strings.Contains(err.Error(), "building headway of") {
		t.Errorf("a program that does not build: %v", err)
	}
	if list, _ := git("worktree", "list"); strings.Contains(list, "\n") {
		t.Errorf("a worktree is left:\n%s", list)
	}
}
