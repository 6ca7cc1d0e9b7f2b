package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/parquet-go/parquet-go"
)

func TestAxisValues(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"1,2,4", "1 2 4"},
		{"0.3..0.7/0.1", "0.3 0.4 0.5 0.6 0.7"},
		{"3..1/-1", "3 2 1"},
		{"1..2/0.4", "1 1.4 1.8"},
		{"16..1024x4", "16 64 256 1024"},
		{"1..0.1x0.5", "1 0.5 0.25 0.125"},
		{"0.5..2#4", "0.5 1 1.5 2"},
		{"0.1,1..2/0.5,5", "0.1 1 1.5 2 5"},
		{"drop,block", "drop block"},
		{"{policy: drop, factor: 2},{policy: block}", "{policy: drop, factor: 2} {policy: block}"},
		{"./a..b.txt", "./a..b.txt"},
	} {
		axes, err := parseGrid([]string{"key=" + test.text})
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		var values []string
		for i := range axes[0].size {
			values = append(values, axes[0].at(i))
		}
		if got := strings.Join(values, " "); got != test.want {
			t.Errorf("%s is %s, want %s", test.text, got, test.want)
		}
	}
	for _, text := range []string{"1..2", "1..2/0", "1..2/-1", "1..2/x", "1..2x1", "1..2x0.5", "0..2x2", "-1..2x2", "1..2#1", "1..2#1.5", "1..NaN/1", "1..2/1e-300", "1..Inf/1"} {
		if _, err := parseGrid([]string{"key=" + text}); err == nil || exitCode(err) != failure.ExitUsage || !strings.Contains(err.Error(), "range") {
			t.Errorf("%s is taken: %v", text, err)
		}
	}
	for _, text := range []string{"1,1,2", "drop,block,drop", "1,2,1.0", "0.5,0.1..0.9/0.1"} {
		if _, err := parseGrid([]string{"key=" + text}); err == nil || exitCode(err) != failure.ExitUsage || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s is taken: %v", text, err)
		}
	}
	axes, err := parseGrid([]string{"key=0.3..3#1000000000"})
	if err != nil || axes[0].size != 1e9 || axes[0].at(1e9-1) != "3" || axes[0].at(500_000_000) != "1.65000000135" {
		t.Errorf("a long axis: %v %+v", err, axes)
	}
}

// gridFlags make a small grid.
var gridFlags = []string{"--grid", "queue.factor=1,2", "--grid", "train.utilization=0.5..0.9/0.2", "--set", "steps.measured=120", "--seeds", "2"}

func sweep(t *testing.T, out string, more ...string) (int, string) {
	t.Helper()
	code, _, stderr := headway(t, append(append([]string{"simulate", document(t, simulated), "--out", out}, gridFlags...), more...)...)
	return code, stderr
}

// A grid's file has a row a setting, the same bytes again, and what an interruption
// left of it is gone on with.
func TestGridCSV(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.csv")
	if code, stderr := sweep(t, path); code != failure.ExitDone || stderr != "" {
		t.Fatalf("code %d: %s", code, stderr)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(whole)).ReadAll()
	if err != nil || len(rows) != 7 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	for i, row := range rows[1:] {
		value := func(name string) float64 {
			v, err := strconv.ParseFloat(row[at[name]], 64)
			if err != nil {
				t.Errorf("row %d: %s is %q", i+1, name, row[at[name]])
			}
			return v
		}
		if row[at["settled"]] != "true" || value("seed") != 3 || value("seeds") != 2 || value("measured_steps") != 120 {
			t.Errorf("row %d is %v", i+1, row)
		}
		if mean := value("staleness_mean"); !(value("staleness_mean_low") < mean && mean < value("staleness_mean_high")) || value("pqs_mean")+value("iqs_mean")-mean > 1e-6 {
			t.Errorf("row %d: %v", i+1, row)
		}
	}
	if rows[2][0] != "1" || rows[2][1] != "0.7" || rows[6][1] != "0.9" {
		t.Errorf("settings %v, %v", rows[2][:2], rows[6][:2])
	}
	if code, stderr := sweep(t, path); code != failure.ExitUsage || !strings.Contains(stderr, "--resume") {
		t.Errorf("over a file that is there: code %d: %s", code, stderr)
	}
	for _, cut := range []int{0, 10, len(whole) / 2, len(whole) - 3, len(whole)} {
		torn := filepath.Join(dir, strconv.Itoa(cut)+".csv")
		if err := os.WriteFile(torn, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		code, stderr := sweep(t, torn, "--resume")
		again, _ := os.ReadFile(torn)
		if code != failure.ExitDone || !bytes.Equal(again, whole) {
			t.Errorf("gone on with after %d bytes: code %d: %s; %d bytes of %d", cut, code, stderr, len(again), len(whole))
		}
	}
	if code, stderr := sweep(t, path, "--resume", "--set", "seed=9"); code != failure.ExitUsage || !strings.Contains(stderr, "experiment") {
		t.Errorf("resumed with another seed: code %d: %s", code, stderr)
	}
	if code, stderr := sweep(t, path, "--resume", "--grid", "rollout.concurrency=16"); code != failure.ExitUsage || !strings.Contains(stderr, "columns") {
		t.Errorf("resumed with another axis: code %d: %s", code, stderr)
	}
}

// A Parquet file has the columns and values of the CSV.
func TestGridParquet(t *testing.T) {
	dir := t.TempDir()
	table, columnar := filepath.Join(dir, "a.csv"), filepath.Join(dir, "a.parquet")
	for _, path := range []string{table, columnar, filepath.Join(dir, "b.parquet")} {
		if code, stderr := sweep(t, path, "--set", "train.utilization=1"); code != failure.ExitDone {
			t.Fatalf("code %d: %s", code, stderr)
		}
	}
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(columnar)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(filepath.Join(dir, "b.parquet")); err != nil || !bytes.Equal(raw, again) {
		t.Errorf("the same grid gave other bytes (%v)", err)
	}
	file, err := parquet.OpenFile(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if names := file.Schema().Columns(); len(names) != len(rows[0]) {
		t.Fatalf("%d columns, the CSV has %d", len(names), len(rows[0]))
	}
	if doc, ok := file.Lookup("staleness_mean"); !ok || doc == "" {
		t.Error("the columns are not explained")
	}
	reader := file.RowGroups()[0].Rows()
	defer reader.Close()
	buffer := make([]parquet.Row, 16)
	n, err := reader.ReadRows(buffer)
	if n != len(rows)-1 || err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("%d rows: %v", n, err)
	}
	for i, row := range buffer[:n] {
		for k, v := range row {
			have := ""
			switch v.Kind() {
			case parquet.Double:
				have = strconv.FormatFloat(v.Double(), 'g', 10, 64)
			case parquet.Int64:
				have = strconv.FormatInt(v.Int64(), 10)
			case parquet.Boolean:
				have = strconv.FormatBool(v.Boolean())
			case parquet.ByteArray:
				have = string(v.ByteArray())
			}
			if v.IsNull() {
				have = ""
			}
			if want := rows[i+1][k]; have != want {
				t.Errorf("row %d, %s: %q, the CSV has %q", i+1, rows[0][k], have, want)
			}
		}
	}
	if code, stderr := sweep(t, columnar, "--resume"); code != failure.ExitUsage || !strings.Contains(stderr, "Parquet") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	torn := filepath.Join(dir, "c.parquet")
	if err := os.WriteFile(torn+".part", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, stderr := sweep(t, torn); code != failure.ExitUsage || !strings.Contains(stderr, "delete "+torn+".part") {
		t.Errorf("beside what an interruption left: code %d: %s", code, stderr)
	}
}

// A setting that fails or has not settled is a row that says so, and the exit code is 1.
func TestGridRowsWithoutMeans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	file := document(t, simulated)
	code, _, stderr := headway(t, "simulate", file, "--out", path, "--grid", "queue.factor=1,8", "--set", "train.utilization=1")
	if code != failure.ExitFailure || !strings.Contains(stderr, "1 of 2 settings not settled") || !strings.Contains(stderr, "queue.factor=8") {
		t.Errorf("code %d: %s", code, stderr)
	}
	text, _ := os.ReadFile(path)
	rows := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(rows) != 3 || !strings.Contains(rows[1], ",true,,") || !strings.Contains(rows[2], ",false,") || !strings.Contains(rows[2], "wanders") && !strings.Contains(rows[2], "drifts") {
		t.Errorf("rows\n%s", text)
	}
	resumed, stdout, again := headway(t, "simulate", file, "--out", path, "--resume", "--grid", "queue.factor=1,8", "--set", "train.utilization=1")
	if resumed != code || again != stderr || strings.Contains(stdout, "per second") {
		t.Errorf("with every row there before: code %d: %s%s", resumed, stdout, again)
	}
	code, stdout, _ = headway(t, "simulate", file, "--grid", "queue.factor=1,8", "--set", "train.utilization=1")
	if code != failure.ExitFailure || !strings.Contains(stdout, "not settled") {
		t.Errorf("code %d, table\n%s", code, stdout)
	}
	code, stdout, stderr = headway(t, "simulate", file, "--grid", "queue.factor=1,8", "--set", "train.utilization=1", "--accept-unsettled")
	if code != failure.ExitDone || stderr != "" || !strings.Contains(stdout, "* not settled") {
		t.Errorf("accepted: code %d, %s, table\n%s", code, stderr, stdout)
	}
}

// A grid that takes long is measured, said to, and started by --yes alone.
func TestLongGridAsks(t *testing.T) {
	file := document(t, simulated)
	code, stdout, stderr := headway(t, "simulate", file, "--grid", "train.utilization=0.3..3#1000000000", "--set", "steps.measured=20", "--set", "steps.warmup=0")
	if code != failure.ExitUsage || stdout != "" {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	for _, want := range []string{"1 000 000 000 settings", "take about", "core", "--yes", "--out FILE.csv"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("lacks %q: %s", want, stderr)
		}
	}
	if code, _, stderr := headway(t, "simulate", file, "--grid", "train.utilization=0.3..3#100000", "--yes"); code != failure.ExitUsage || !strings.Contains(stderr, "--out") {
		t.Errorf("without a file: code %d: %s", code, stderr)
	}
	if code, _, stderr := headway(t, "simulate", file, "--grid", "seed=1..2#9000000000", "--grid", "queue.factor=1..2#9000000000"); code != failure.ExitUsage || !strings.Contains(stderr, "counted") {
		t.Errorf("too many: code %d: %s", code, stderr)
	}
}

// In a large grid a wrong combination is a row; a value wrong by itself is refused.
func TestLargeGridChecksItsAxes(t *testing.T) {
	g, err := (&simulateCmd{File: document(t, simulated), Seeds: 1, Grid: []string{"train.utilization=0.3..3#100000", "rollout.group_size=4,5"}}).grid()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.check(); err == nil || !strings.Contains(err.Error(), "group_size") {
		t.Errorf("a batch of 32 in groups of 5: %v", err)
	}
	bad := g.make(1)
	p := newGridPoint(g, 1)
	p.add(bad)
	p.finish()
	if bad.err == nil || p.Error == "" || !strings.Contains(cell(noteOf(p)), "group_size") || columns[4].of(p, true) != nil {
		t.Errorf("%v: %+v", bad.err, p)
	}
}

// Values are taken in order whatever order they are made in, few of them at a time.
func TestInOrder(t *testing.T) {
	var ahead, most, taken atomic.Int64
	err := inOrder(5, 400, 4, func(i int64) int64 {
		if n := ahead.Add(1); n > most.Load() {
			most.Store(n)
		}
		for range (i % 7) * 100 {
			runtime.Gosched()
		}
		return i * i
	}, func(i, v int64) error {
		ahead.Add(-1)
		if v != i*i || i != 5+taken.Load() {
			t.Errorf("%d came as %d after %d", i, v, taken.Load())
		}
		taken.Add(1)
		return nil
	})
	if err != nil || taken.Load() != 395 || most.Load() > 4*16+8 {
		t.Errorf("%v, %d taken, %d made ahead", err, taken.Load(), most.Load())
	}
	stop := errors.New("enough")
	if err := inOrder(0, 1<<40, 3, func(i int64) int64 { return i }, func(i, _ int64) error {
		if i == 10 {
			return stop
		}
		return nil
	}); !errors.Is(err, stop) {
		t.Errorf("ended with %v", err)
	}
}

func TestRoughly(t *testing.T) {
	for _, test := range []struct {
		s    float64
		want string
	}{{3, "3 s"}, {150, "2 min"}, {7200, "2.0 h"}, {86400 * 10, "10 days"}, {86400 * 365.25 * 40, "40 years"}} {
		if got := roughly(test.s); got != test.want {
			t.Errorf("%g s is %q, want %q", test.s, got, test.want)
		}
	}
	if s := perSecond(12.34); s != "12.3" {
		t.Error(s)
	}
	if s := briefly(0.0123); s != "12.3 ms" {
		t.Error(s)
	}
}

// Every column of a file is explained in the documentation, in its order.
func TestColumnsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, c := range columns {
		row := "| `" + c.name + "` | " + c.doc + " |\n"
		i := strings.Index(string(text[at:]), row)
		if i < 0 {
			t.Errorf("docs/simulate.md lacks, after the columns before it:\n%s", row)
			continue
		}
		at += i
	}
}

// What seeds share is bounded: memory does not grow with the grid.
func TestSharedSettingsAreBounded(t *testing.T) {
	g := &grid{seeds: 3}
	first := g.shared(0)
	if g.shared(0) != first {
		t.Error("seeds of a setting do not share it")
	}
	for i := range int64(1000) {
		g.shared(i)
	}
	if len(g.recent) > recentMax {
		t.Errorf("%d settings are kept, want at most %d", len(g.recent), recentMax)
	}
	one := &grid{seeds: 1}
	if one.shared(0); len(one.recent) != 0 {
		t.Error("a setting of one seed is kept")
	}
}
