package workload

import (
	"errors"
	"math"
	"testing"
)

func mustSolve(t *testing.T, spec SolveSpec) *Solve {
	t.Helper()
	s, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSolveSpecNamesTheBadField(t *testing.T) {
	for _, c := range []struct {
		spec  SolveSpec
		field string
	}{
		{SolveSpec{Kind: "beta"}, "kind"},
		{SolveSpec{Rate: 0.5}, "rate"},
		{SolveSpec{Kind: KindNone, Levels: []float64{1}}, "levels"},
		{SolveSpec{Kind: KindFixed, Rate: 1.5}, "rate"},
		{SolveSpec{Kind: KindFixed, Rate: math.NaN()}, "rate"},
		{SolveSpec{Kind: KindFixed, Rate: 0.5, Spread: 1}, "spread"},
		{SolveSpec{Kind: KindFixed, Rate: 0.5, Steps: 3}, "steps"},
		{SolveSpec{Kind: KindLogistic, Rate: 0.5}, "rate"},
		{SolveSpec{Kind: KindLogistic, From: 1, To: 2}, "steps"},
		{SolveSpec{Kind: KindLogistic, From: 31, To: 31}, "from"},
		{SolveSpec{Kind: KindLogistic, To: -31, Steps: 1}, "to"},
		{SolveSpec{Kind: KindLogistic, Steps: -1}, "steps"},
		{SolveSpec{Kind: KindLogistic, Begin: -1}, "begin"},
		{SolveSpec{Kind: KindFixed, Rate: 0.5, Begin: 1}, "begin"},
		{SolveSpec{Kind: KindLogistic, Spread: -1}, "spread"},
		{SolveSpec{Kind: KindLogistic, Levels: []float64{0, 99}}, "levels[1]"},
		{SolveSpec{Kind: KindLogistic, Levels: make([]float64, 1025)}, "levels"},
	} {
		_, err := c.spec.Build()
		var field *FieldError
		if !errors.As(err, &field) || field.Field != c.field {
			t.Errorf("%+v: %v, want field %s", c.spec, err, c.field)
		}
	}
	for _, spec := range []SolveSpec{{}, {Kind: KindNone}, {Kind: KindFixed}, {Kind: KindLogistic}, {Kind: KindLogistic, From: -1, To: 1, Steps: 10, Levels: []float64{-2, 0, 2}, Spread: 1}} {
		if _, err := spec.Build(); err != nil {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

// Draws have the rate the model states, by level and version, and a group's count
// of solved rollouts the distribution it states.
func TestSolveDrawsAsItSays(t *testing.T) {
	src := NewSource(5, StreamSolve)
	for _, spec := range []SolveSpec{
		{Kind: KindFixed, Rate: 0.3},
		{Kind: KindLogistic, From: -1, To: 2, Steps: 100, Levels: []float64{-1, 0.5}},
		{Kind: KindLogistic, From: 0.5, To: 0.5, Spread: 1.5},
	} {
		s := mustSolve(t, spec)
		for _, at := range []struct {
			level   int
			version int64
		}{{0, 0}, {1, 50}, {2, 100}, {2, 1000}} {
			const groups, n = 20000, 4
			solved, mixed := 0, 0
			for g := range uint64(groups) {
				in := 0
				for k := range uint32(n) {
					if s.Draw(src, g+1, at.level, at.version, g+1, k, 1) {
						in++
					}
				}
				solved += in
				if in > 0 && in < n {
					mixed++
				}
			}
			if got, want := float64(solved)/(groups*n), s.Rate(at.level, at.version); math.Abs(got-want) > 0.01 {
				t.Errorf("%+v at level %d, version %d: %.4f solved, want %.4f", spec, at.level, at.version, got, want)
			}
			if got, want := float64(mixed)/groups, s.Share(n, 1, n-1, at.level, at.version); math.Abs(got-want) > 0.015 {
				t.Errorf("%+v at level %d, version %d: %.4f of the groups mixed, want %.4f", spec, at.level, at.version, got, want)
			}
		}
	}
}

// The skill goes from one value to the other in a straight line and stays, harder
// levels are solved less often, and the shares of all counts add up to 1.
func TestSolveRates(t *testing.T) {
	s := mustSolve(t, SolveSpec{Kind: KindLogistic, From: -2, To: 2, Steps: 100, Levels: []float64{-1, 1}, Spread: 0.7})
	for version, want := range map[int64]float64{0: -2, 25: -1, 100: 2, 500: 2} {
		if got := s.Skill(version); math.Abs(got-want) > 1e-12 {
			t.Errorf("skill at v%d is %v, want %v", version, got, want)
		}
	}
	later := mustSolve(t, SolveSpec{Kind: KindLogistic, Begin: 50, From: -2, To: 2, Steps: 100})
	for version, want := range map[int64]float64{0: -2, 50: -2, 75: -1, 150: 2, 500: 2} {
		if got := later.Skill(version); math.Abs(got-want) > 1e-12 {
			t.Errorf("begun at v50, the skill at v%d is %v, want %v", version, got, want)
		}
	}
	if easy, hard := s.Rate(1, 50), s.Rate(2, 50); easy <= hard || math.Abs(easy+hard-1) > 1e-9 {
		t.Errorf("levels at −1 and 1 are solved %v and %v of the time by a skill of 0, want symmetric", easy, hard)
	}
	sum := 0.0
	for k := range 9 {
		sum += s.Share(8, k, k, 1, 10)
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("the shares of 0 to 8 of 8 add up to %v", sum)
	}
	if got := s.Rate(7, 50); got != s.Rate(2, 50) {
		t.Errorf("a level beyond the last is solved %v of the time, want as the last", got)
	}
	for _, none := range []*Solve{nil, {}, mustSolve(t, SolveSpec{})} {
		if !none.None() || none.Levels() != 0 || none.Rate(0, 0) != 0 || none.Draw(Source{}, 1, 0, 0, 1, 0, 1) {
			t.Error("a model of kind none solves something")
		}
	}
	always := mustSolve(t, SolveSpec{Kind: KindFixed, Rate: 1})
	if always.Rate(0, 0) != 1 || always.Share(4, 1, 3, 0, 0) != 0 || always.Share(4, 3, 2, 0, 0) != 0 {
		t.Error("a rate of 1 leaves something unsolved")
	}
}

// A prompt is as long whenever it is played, its factor has mean 1 and the stated
// spread, and without a spread nothing changes.
func TestPromptScale(t *testing.T) {
	src := NewSource(3, StreamPromptScale)
	scale, err := NewPromptScale(0.8, 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 200_000
	sum, logs, squares := 0.0, 0.0, 0.0
	for p := range uint64(n) {
		f := scale.Factor(src, p)
		sum += f
		logs += math.Log(f)
		squares += math.Log(f) * math.Log(f)
	}
	mean, sd := sum/n, math.Sqrt(squares/n-logs*logs/n/n)
	if math.Abs(mean-1) > 0.01 || math.Abs(sd-0.8) > 0.005 {
		t.Errorf("factors have mean %v and a spread of %v, want 1 and 0.8", mean, sd)
	}
	if a, b := scale.Apply(src, 7, 1000), scale.Apply(src, 7, 2000); math.Abs(float64(b)/float64(a)-2) > 0.01 {
		t.Errorf("prompt 7 turns 1000 tokens into %d and 2000 into %d", a, b)
	}
	off, err := NewPromptScale(0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if !off.Off() || off.Apply(src, 7, 12345) != 12345 || off.Factor(src, 7) != 1 {
		t.Error("a sigma of 0 changes lengths")
	}
	capped, err := NewPromptScale(3, 500)
	if err != nil {
		t.Fatal(err)
	}
	for p := range uint64(2000) {
		if tokens := capped.Apply(src, p, 400); tokens < 1 || tokens > 500 {
			t.Fatalf("prompt %d has %d tokens under a cap of 500", p, tokens)
		}
	}
	for _, bad := range []struct {
		sigma float64
		limit int
	}{{-1, 0}, {math.NaN(), 0}, {4, 0}, {1, -1}, {1, MaxTokens + 1}} {
		if _, err := NewPromptScale(bad.sigma, bad.limit); err == nil {
			t.Errorf("sigma %v and cap %d are taken", bad.sigma, bad.limit)
		}
	}
}

// A prompt that is played again is the same measured group, whichever group plays
// it; independent lengths and a group's own prompt are drawn as before.
func TestDrawPrompt(t *testing.T) {
	src := NewSource(1, StreamLength)
	measured := [][]int{{10, 11, 12}, {20, 21, 22}, {30, 31, 32}, {40, 41, 42}}
	grouped, err := LengthSpec{Kind: KindEmpirical, Groups: measured}.Build()
	if err != nil {
		t.Fatal(err)
	}
	single, err := LengthSpec{Kind: KindExponential, MeanTokens: 100}.Build()
	if err != nil {
		t.Fatal(err)
	}
	times, err := TimesSpec{Kind: KindEmpirical, Groups: [][]float64{{1, 1.5}, {2, 2.5}, {3, 3.5}}}.Build()
	if err != nil {
		t.Fatal(err)
	}
	starts := map[int]bool{}
	for g := range uint64(200) {
		for k := range uint32(3) {
			if grouped.DrawPrompt(src, g, g, k, 1) != grouped.Draw(src, g, k, 1) || times.DrawPrompt(src, g, g, k, 1) != times.Draw(src, g, k, 1) {
				t.Fatalf("group %d: its own prompt is drawn otherwise", g)
			}
			if single.DrawPrompt(src, 5, g, k, 1) != single.Draw(src, g, k, 1) {
				t.Fatalf("group %d: independent lengths depend on the prompt", g)
			}
			if grouped.DrawPrompt(src, 5, g, k, 1)/10 != grouped.Draw(src, 5, 0, 1)/10 {
				t.Fatalf("group %d plays prompt 5 as another measured group", g)
			}
			if a, b := times.DrawPrompt(src, 5, g, k, 1), times.Draw(src, 5, 0, 1); a/1e9 != b/1e9 {
				t.Fatalf("group %d: prompt 5 takes %d ns, and %d before", g, a, b)
			}
		}
		starts[grouped.DrawPrompt(src, 5, g, 0, 1)] = true
	}
	if len(starts) != 3 {
		t.Errorf("first siblings of prompt 5 are %v, want all three members", starts)
	}
}

func TestSolveDrawsDoNotAllocate(t *testing.T) {
	src := NewSource(1, StreamSolve)
	s := mustSolve(t, SolveSpec{Kind: KindLogistic, Spread: 1})
	scale, err := NewPromptScale(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	if allocated := testing.AllocsPerRun(1000, func() {
		n++
		s.Draw(src, n, 0, 3, n, 0, 1)
		scale.Apply(src, n, 100)
	}); allocated != 0 {
		t.Errorf("a draw allocates %v times", allocated)
	}
}
