package foreign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// warned finds a warning by a part of its text.
func warned(log *Log, part string) *Warning {
	for i := range log.Warnings {
		if strings.Contains(log.Warnings[i].Text, part) {
			return &log.Warnings[i]
		}
	}
	return nil
}

func missing(log *Log, what string) *Missing {
	for i := range log.Missing {
		if strings.HasPrefix(log.Missing[i].What, what+" ") {
			return &log.Missing[i]
		}
	}
	return nil
}

func skyRow(step int, staleness string) string {
	return fmt.Sprintf(`{"_step":%d,"_timestamp":%d,"async/staleness_mean":%s,"timing/step":10,"timing/wait_for_generation_buffer":2}`+"\n", step, 1000+10*step, staleness)
}

func TestWhatIsWrongInsideAFile(t *testing.T) {
	for _, c := range []struct {
		name, text, warning string
		steps               int
		count               int64
	}{
		{"no finite number", skyRow(1, "1") + skyRow(2, "NaN") + skyRow(3, "-Infinity"), "no finite number", 3, 2},
		{"a number beyond 64 bits", skyRow(1, "1") + skyRow(2, "1e999"), "no finite number", 2, 1},
		{"torn", skyRow(1, "1") + skyRow(2, "1")[:40], "cut off", 1, 1},
		{"no JSON", skyRow(1, "1") + "Traceback (most recent call last):\n" + skyRow(2, "1"), "no JSON object", 2, 1},
		{"a repeated step", skyRow(1, "1") + skyRow(2, "5") + skyRow(2, "1"), "logged again", 2, 1},
		{"a clock that goes back", skyRow(1, "1") + strings.Replace(skyRow(2, "1"), "_timestamp\":1", "_timestamp\":0.1", 1), "clock goes back", 2, 1},
		{"no text", skyRow(1, "1") + "{\"\xff\xfe\":1,\"_step\":2,\"async/staleness_mean\":1}\n", "", 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, err := Read(context.Background(), []string{written(t, "history.jsonl", c.text)}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(log.Series) != c.steps {
				t.Errorf("%d steps, want %d", len(log.Series), c.steps)
			}
			w := warned(log, c.warning)
			if c.warning != "" && (w == nil || w.Count != c.count) {
				t.Errorf("warnings %+v, want %q %d times", log.Warnings, c.warning, c.count)
			}
			if mean, _ := log.Mean(Staleness); mean.Value != 1 {
				t.Errorf("staleness %+v, want 1", mean)
			}
		})
	}
}

func TestALongLineIsLeftOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.jsonl")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write(skyRow(1, "1") + `{"_step":2,"text":"`)
	for range (LineMax >> 20) + 1 {
		write(strings.Repeat("x", 1<<20))
	}
	write("\"}\n" + skyRow(3, "3"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := Read(context.Background(), []string{file}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if w := warned(log, "longer than"); w == nil || w.Line != 2 || len(log.Series) != 2 {
		t.Errorf("%d steps, warnings %+v", len(log.Series), log.Warnings)
	}
}

func TestRefusals(t *testing.T) {
	fa := `{"_step":1,"fully_async/trainer/idle_ratio":0.1,"timing_s/step":3}` + "\n"
	for _, c := range []struct {
		name, text string
		options    Options
		want       []string
	}{
		{"two frameworks", fa + skyRow(2, "1"), Options{}, []string{"verl-fa (fully_async/trainer/idle_ratio)", "skyrl (async/staleness_mean)", "--from"}},
		{"no framework", `{"_step":1,"loss":0.1}` + "\n", Options{}, []string{"_step, loss", "--from", "prime-rl"}},
		{"nothing", "", Options{}, []string{"nothing in these files"}},
		{"a framework misspelled", fa, Options{From: "skyrll"}, []string{"did you mean skyrl?"}},
		{"another framework named", fa, Options{From: "skyrl"}, []string{"nothing in these files is what SkyRL logs"}},
		{"a setting unknown", fa, Options{Given: map[string]float64{"group_siz": 3}}, []string{`"group_siz" is no figure`, "did you mean group_size?"}},
		{"a setting below 0", fa, Options{Given: map[string]float64{"group_size": -1}}, []string{"group_size = -1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, err := Read(context.Background(), []string{written(t, "history.jsonl", c.text)}, c.options)
			if err == nil {
				t.Fatalf("it was read: %+v", log)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error %q lacks %q", err, part)
				}
			}
		})
	}
	if _, err := Read(context.Background(), nil, Options{}); err == nil {
		t.Error("no files were read")
	}
	if _, err := Read(context.Background(), []string{filepath.Join(t.TempDir(), "none.jsonl")}, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := Read(context.Background(), []string{t.TempDir()}, Options{}); err == nil || !strings.Contains(err.Error(), "no log of a known kind") {
		t.Errorf("an empty directory: %v", err)
	}
}

// With --from, keys of another framework are left out and said to be.
func TestFromDecides(t *testing.T) {
	text := `{"_step":1,"fully_async/trainer/idle_ratio":0.1,"timing_s/step":3}` + "\n" + skyRow(2, "1")
	log, err := Read(context.Background(), []string{written(t, "history.jsonl", text)}, Options{From: "SkyRL"})
	if err != nil {
		t.Fatal(err)
	}
	if log.Framework != "skyrl" || warned(log, "keys of verl-fa") == nil || len(log.Series) != 1 {
		t.Errorf("%s, %d steps, %+v", log.Framework, len(log.Series), log.Warnings)
	}
}

func TestARenamedKeyIsSuggested(t *testing.T) {
	text := strings.ReplaceAll(skyRow(1, "1"), "wait_for_generation_buffer", "wait_for_generator_buffer")
	log, err := Read(context.Background(), []string{written(t, "history.jsonl", text)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := missing(log, "wait_s")
	if m == nil || !strings.Contains(m.Why, "timing/wait_for_generator_buffer: was timing/wait_for_generation_buffer renamed?") {
		t.Errorf("missing: %+v", log.Missing)
	}
	if m := missing(log, "group_size"); m == nil || !strings.Contains(m.Get, "--set group_size") {
		t.Errorf("missing: %+v", log.Missing)
	}
}

func TestReadingCanBeEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var b strings.Builder
	for i := range 3000 {
		b.WriteString(skyRow(i+1, "1"))
	}
	cancel()
	if _, err := Read(ctx, []string{written(t, "history.jsonl", b.String())}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

// A long log is thinned: the means stay what they were, and what is kept is bounded.
func TestALongLogIsThinned(t *testing.T) {
	const steps = 3*SeriesMax + 5
	var b strings.Builder
	sum := 0.0
	for i := range steps {
		value := float64(i % 7)
		sum += value
		fmt.Fprintf(&b, `{"_step":%d,"async/staleness_mean":%g,"async/staleness_max":%d}`+"\n", i+1, value, i)
	}
	shown := int64(0)
	log, err := Read(context.Background(), []string{written(t, "history.jsonl", b.String())}, Options{Progress: func(done, total int64) { shown = done }})
	if err != nil {
		t.Fatal(err)
	}
	mean, n := log.Mean(Staleness)
	if len(log.Series) > SeriesMax || n != steps || !near(mean.Value, sum/steps) {
		t.Errorf("%d entries for %d steps, mean %g, want %g", len(log.Series), n, mean.Value, sum/steps)
	}
	last := log.Series[len(log.Series)-1]
	if last.Step != steps || last.StalenessMax.Value != steps-1 {
		t.Errorf("the last entry is of step %d, its largest staleness %g", last.Step, last.StalenessMax.Value)
	}
	if warned(log, "stands for 4 steps") == nil || shown == 0 {
		t.Errorf("warnings %+v, progress %d", log.Warnings, shown)
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

func FuzzFlat(f *testing.F) {
	for _, seed := range []string{skyRow(1, "NaN"), `{"a":{"b":[1,{"c":2}],"d":"\u00e4\n"},"e":true,"f":null,"g":-1e3}`, `{"a":1}x`, `{"a"`, `[[[`, `{"a":"\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		row := newRowReader("fuzz")
		if row.object([]byte(text)) == nil && !strings.HasPrefix(strings.TrimLeft(text, " \t"), "{") {
			t.Errorf("%q is taken as an object", text)
		}
	})
}
