package foreign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// watched counts what a source hands on.
type watched struct {
	scout
	keys     int
	warnings []string
	set      map[string]string
}

func (w *watched) Row(r Row) error {
	w.keys += len(r.Values)
	return nil
}
func (w *watched) Warn(_ string, _ int64, text string) { w.warnings = append(w.warnings, text) }
func (w *watched) Setting(key, value string) {
	if w.set == nil {
		w.set = map[string]string{}
	}
	w.set[key] = value
}

// A long key over many short ones is a few hundred kilobytes in the file and gigabytes where each is joined.
func TestKeysAreBounded(t *testing.T) {
	var members strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&members, `"%d":1,`, i)
	}
	inner := strings.TrimSuffix(members.String(), ",")
	long := strings.Repeat("k", 400_000)
	for name, line := range map[string]string{
		"below a long key": `{"` + long + `":{` + inner + `},"step":3}`,
		"below a chain":    `{` + strings.Repeat(`"`+long[:400]+`":{`, 100) + inner + strings.Repeat("}", 100) + `,"step":3}`,
	} {
		row := newRowReader("x")
		allocated := testing.AllocsPerRun(1, func() {
			if err := row.object([]byte(line)); err != nil {
				t.Fatal(err)
			}
		})
		if len(row.row.Values) != 1 || row.row.Step != 3 || row.longKeys == 0 {
			t.Errorf("%s: %d values, step %d, %d long keys", name, len(row.row.Values), row.row.Step, row.longKeys)
		}
		if allocated > 2000 {
			t.Errorf("%s: %g allocations", name, allocated)
		}
	}
}

// A row has so many values at most, whatever its line is like.
func TestRowsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"step":1,"async/staleness_mean":2`)
	for i := range 2 * RowValuesMax {
		fmt.Fprintf(&b, `,"k%d":1`, i)
	}
	b.WriteString("}\n")
	w := &watched{}
	if err := (jsonLines{written(t, "m.jsonl", b.String())}).Read(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if w.keys != RowValuesMax || len(w.warnings) != 1 || w.warnings[0] != manyValues {
		t.Errorf("%d values, warnings %q", w.keys, w.warnings)
	}
}

// Reading ends with its context, soon after where lines are long.
func TestReadingEndsWithItsContext(t *testing.T) {
	line := `{"step":1,"note":"` + strings.Repeat("x", 100_000) + `"}` + "\n"
	file := written(t, "m.jsonl", strings.Repeat(line, 50))
	ctx, cancel := context.WithCancel(context.Background())
	rows := 0
	err := Lines(ctx, file, &watched{}, func([]byte, int64, bool) error {
		rows++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || rows != 1 {
		t.Errorf("%v after %d lines", err, rows)
	}
	if _, err := Read(ctx, []string{filepath.Dir(file)}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a directory: %v", err)
	}
}

// A config is not read beyond its limit: this one is sparse, and would be 3 GiB in memory.
func TestConfigBeyondItsLimit(t *testing.T) {
	file := written(t, "config.yaml", "a: 1\n")
	if err := os.Truncate(file, 3<<30); err != nil {
		t.Fatal(err)
	}
	w := &watched{}
	if err := (sideFile{file}).Read(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], "larger than") || w.set != nil {
		t.Errorf("warnings %q", w.warnings)
	}
}

// A config's settings are read in the time of its size: as W&B writes it, and as one would that wants to do harm.
func TestConfigs(t *testing.T) {
	nine := func(form string) string { return strings.Repeat(form, 9) }
	for name, c := range map[string]struct {
		text string
		want map[string]string
	}{
		"W&B's": {"wandb_version: 1\n_wandb:\n  value:\n    t: 1\nactor:\n  desc: null\n  value:\n    rollout:\n      n: 8 # of a prompt\n      temperature: 1.0e-06\n" +
			"    names:\n    - a: 1\n      b: 2\n    note: \"a: #b\"\nlong:\n  value: |-\n    x: 1\n    y: 2\nlr:\n  value: 0.5\n'a b':\n  value: 'it''s'\nmodel: hf://a:b\n",
			map[string]string{"actor.rollout.n": "8", "actor.rollout.temperature": "1.0e-06", "actor.note": "a: #b", "lr": "0.5", "a b": "it's", "model": "hf://a:b"}},
		"comments": {"a: \"64\"   # groups\nb: 'it''s # 8' # \"siblings\"\nc: \"x \\\" # y\" # z\nd: \"e\"f # g\nh: 'open # i\n",
			map[string]string{"a": "64", "b": "it's # 8", "c": "x \" # y", "h": "'open # i"}},
		"windows": {"a:\r\n  value:\r\n    b: true\r\n", map[string]string{"a.b": "true"}},
		"laughs":  {"a: &a\n  x: 1\n" + nine("b: &b {k: *a, l: *a}\n") + "c: 3\n", map[string]string{"c": "3"}},
		"deep":    {"a: " + strings.Repeat("[", 200_000) + "\nb: 2\n", map[string]string{"b": "2"}},
		"lists":   {strings.Repeat("- ", 1000) + "a: 1\nb: 2\n", map[string]string{"b": "2"}},
	} {
		w := &watched{}
		if err := (sideFile{written(t, "config.yaml", c.text)}).Read(context.Background(), w); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(w.set, c.want) {
			t.Errorf("%s: %q, want %q", name, w.set, c.want)
		}
	}
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "%*sk:\n", i, "")
	}
	w := &watched{}
	if err := (sideFile{written(t, "config.yaml", b.String())}).Read(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if len(w.warnings) == 0 || len(w.set) > 0 {
		t.Errorf("3000 keys in each other: %q, %q", w.warnings, w.set)
	}
}

// Of a TOML config the text of several lines is no setting, and a table in braces is some.
func TestTOML(t *testing.T) {
	w := &watched{}
	text := "a = 1 # one\nprompt = \"\"\"\na = 5\n[b]\n\"\"\"\nother = '''\na = 6'''\nempty = \"\"\"x\"\"\"\nlimits = { most = 256, of.all = \"x\", inner = {b = 2} } # all\n" +
		"torn = { a = 1,\n[section]\nc = '3'\n"
	if err := (tomlFile{written(t, "a.toml", text)}).Read(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "1", "limits.most": "256", "limits.of.all": "x", "limits.inner.b": "2", "torn.a": "1", "section.c": "3"}
	if !maps.Equal(w.set, want) || len(w.warnings) != 1 || !strings.Contains(w.warnings[0], "braces") {
		t.Errorf("%q, want %q; warnings %q", w.set, want, w.warnings)
	}
}

// A directory may be named by a link to it; links inside, loops among them, are not followed.
func TestLinkToADirectory(t *testing.T) {
	file := written(t, "wandb/run-1/history.jsonl", skyRow(1, "1")+skyRow(2, "3"))
	run := filepath.Dir(file)
	latest := filepath.Join(filepath.Dir(run), "latest-run")
	for link, to := range map[string]string{latest: "run-1", filepath.Join(run, "loop"): "..", filepath.Join(run, "self"): "self"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{latest, latest + "/", filepath.Dir(run)} {
		log, err := Read(context.Background(), []string{name}, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(log.Files) != 1 || len(log.Series) != 2 {
			t.Errorf("%s: files %q, %d steps", name, log.Files, len(log.Series))
		}
	}
}
