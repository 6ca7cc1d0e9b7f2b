package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/schedule"
)

// smallSchedules is a comparison that takes no time.
func smallSchedules(t *testing.T) schedule.Input {
	t.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 500, Tailness: 50}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return schedule.Input{
		Lengths: lengths, GroupSize: 4, BatchGroups: 8, GPUs: 8, RolloutGPUs: 4, SlotsPerEngine: 8, Decode: schedule.Constant(100),
		Train: schedule.Phase{S: 5, GPUs: 8}, SyncS: 1, Batches: 3, Warmup: 1,
	}
}

// printed runs planSchedules.
func printedSchedules(t *testing.T, in schedule.Input, o schedulesOptions) (stdout, stderr string, err error) {
	t.Helper()
	var out, diagnostics bytes.Buffer
	err = planSchedules(&app.Process{Stdout: &out, Stderr: &diagnostics}, in, o)
	return out.String(), diagnostics.String(), err
}

func TestPlanSchedulesPrints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedules.html")
	stdout, stderr, err := printedSchedules(t, smallSchedules(t), schedulesOptions{HTML: path, About: []string{"Eight GPUs."}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Eight GPUs.", "colocated", "async-partial", "queue-drop", "barrier removed or hidden", "engines  |"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the text lacks %q:\n%s", want, stdout)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "<svg") || !strings.Contains(stderr, path) {
		t.Errorf("a page of %d bytes, stderr %q", len(page), stderr)
	}
}

// Whatever the terminal's width, no line is longer.
func TestPlanSchedulesFit(t *testing.T) {
	for _, columns := range []int{80, 100, 140} {
		stdout, _, err := printedSchedules(t, smallSchedules(t), schedulesOptions{Columns: columns, About: []string{strings.Repeat("a figure and its source ", 8)}})
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(stdout) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%d of %d columns: %s", n, columns, line)
			}
		}
	}
}

func TestPlanSchedulesJSON(t *testing.T) {
	stdout, _, err := printedSchedules(t, smallSchedules(t), schedulesOptions{JSON: true, About: []string{"not in a document"}})
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Schedules []struct {
			Name  string `json:"name"`
			Parts struct {
				StepS float64 `json:"step_s"`
			} `json:"parts"`
		} `json:"schedules"`
		Verdict struct {
			Text string `json:"text"`
		} `json:"conclusion"`
	}
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	if len(document.Schedules) != len(schedule.Names()) || document.Schedules[0].Parts.StepS <= 0 || document.Verdict.Text == "" {
		t.Errorf("document %+v", document)
	}
}

func TestPlanSchedulesRefuses(t *testing.T) {
	in := smallSchedules(t)
	in.Train.S = -1
	_, _, err := printedSchedules(t, in, schedulesOptions{})
	var refused *failure.Error
	if !errors.As(err, &refused) || refused.Code != failure.ExitUsage || !strings.Contains(err.Error(), "Train.S") {
		t.Errorf("a train step of -1 s: %v", err)
	}
	in = smallSchedules(t)
	_, _, err = printedSchedules(t, in, schedulesOptions{HTML: filepath.Join(t.TempDir(), "missing", "x.html")})
	if !errors.As(err, &refused) || refused.Code != failure.ExitUsage {
		t.Errorf("a page in a folder that is not there: %v", err)
	}
}
