package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// gridFlags make a small grid.
var gridFlags = []string{"--grid", "queue.factor=1,2", "--grid", "modelled.train.utilization=0.5..0.9/0.2", "--set", "steps.measured=120", "--seeds", "2"}

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
		if code, stderr := sweep(t, path, "--set", "modelled.train.utilization=1"); code != failure.ExitDone {
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
	code, _, stderr := headway(t, "simulate", file, "--out", path, "--grid", "queue.factor=1,8", "--set", "modelled.train.utilization=1")
	if code != failure.ExitFailure || !strings.Contains(stderr, "1 of 2 settings not settled") || !strings.Contains(stderr, "queue.factor=8") {
		t.Errorf("code %d: %s", code, stderr)
	}
	text, _ := os.ReadFile(path)
	rows := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(rows) != 3 || !strings.Contains(rows[1], ",true,,") || !strings.Contains(rows[2], ",false,") || !strings.Contains(rows[2], "wanders") && !strings.Contains(rows[2], "drifts") {
		t.Errorf("rows\n%s", text)
	}
	resumed, stdout, again := headway(t, "simulate", file, "--out", path, "--resume", "--grid", "queue.factor=1,8", "--set", "modelled.train.utilization=1")
	if resumed != code || again != stderr || strings.Contains(stdout, "per second") {
		t.Errorf("with every row there before: code %d: %s%s", resumed, stdout, again)
	}
	code, stdout, _ = headway(t, "simulate", file, "--grid", "queue.factor=1,8", "--set", "modelled.train.utilization=1")
	if code != failure.ExitFailure || !strings.Contains(stdout, "not settled") {
		t.Errorf("code %d, table\n%s", code, stdout)
	}
	code, stdout, stderr = headway(t, "simulate", file, "--grid", "queue.factor=1,8", "--set", "modelled.train.utilization=1", "--accept-unsettled")
	if code != failure.ExitDone || stderr != "" || !strings.Contains(stdout, "* not settled") {
		t.Errorf("accepted: code %d, %s, table\n%s", code, stderr, stdout)
	}
}

// A grid that takes long is measured, said to, and started by --yes alone.
func TestLongGridAsks(t *testing.T) {
	file := document(t, simulated)
	code, stdout, stderr := headway(t, "simulate", file, "--grid", "modelled.train.utilization=0.3..3#1000000000", "--set", "steps.measured=20", "--set", "steps.warmup=0")
	if code != failure.ExitUsage || stdout != "" {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	for _, want := range []string{"1 000 000 000 settings", "take about", "core", "--yes", "--out FILE.csv"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("lacks %q: %s", want, stderr)
		}
	}
	if code, _, stderr := headway(t, "simulate", file, "--grid", "modelled.train.utilization=0.3..3#100000", "--yes"); code != failure.ExitUsage || !strings.Contains(stderr, "--out") {
		t.Errorf("without a file: code %d: %s", code, stderr)
	}
	if code, _, stderr := headway(t, "simulate", file, "--grid", "seed=1..2#9000000000", "--grid", "queue.factor=1..2#9000000000"); code != failure.ExitUsage || !strings.Contains(stderr, "counted") {
		t.Errorf("too many: code %d: %s", code, stderr)
	}
}

func TestRoughly(t *testing.T) {
	for _, test := range []struct {
		s    float64
		want string
	}{{3, "3 s"}, {150, "2 min"}, {7200, "2.0 h"}, {86400 * 10, "10 days"}, {86400 * 365.25 * 40, "40 years"}} {
		if got := report.Roughly(test.s); got != test.want {
			t.Errorf("%g s is %q, want %q", test.s, got, test.want)
		}
	}
	if s := perSecond(12.34); s != "12.3" {
		t.Error(s)
	}
	if s := report.Briefly(0.0123); s != "12.3 ms" {
		t.Error(s)
	}
}
