package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runsTable is a table of two runs, servingTable one of a serving measurement.
const (
	runsTable = "# two runs\nid,family,grade,model,gpu,gpus,schedule,train_gpus,rollout_gpus,rollout_tp,prompts,samples,sequences,mean_prompt_tokens,mean_response_tokens,cap_tokens,m_step_s,unknown\n" +
		"one,own,A,qwen3-8b,h100-sxm,16,\"synchronous, colocated\",16,16,1,64,16,1024,200,1000,4096,80,x\n" +
		"two,own,A,qwen3-8b,h100-sxm,16,\"asynchronous, separate GPUs\",8,8,1,64,16,1024,200,1000,4096,60,\n" +
		"three,own,A,bird-9b,h100-sxm,16,\"synchronous, colocated\",16,16,1,64,16,1024,200,1000,4096,,\n"
	servingTable = "id,area,model,gpu,gpus,engine,layout,dtype,input_tokens,output_tokens,load,arm,m_tpot_ms\n" +
		"dec,decode,qwen3-32b,h100-sxm,2,vLLM,TP2,bf16,1024,64,8 at once,,15.9\n"
)

// reproduce --cases answers tables of runs and of serving, calibrates, and refuses what it cannot read.
func TestReproduceCases(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	runs, serve := file("runs.csv", runsTable), file("serving.csv", servingTable)
	page := filepath.Join(dir, "page.html")
	code, out, stderr := headway(t, "reproduce", "--cases", runs, "--calibrate-on", " one", "--json", "--html", page)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var got struct {
		Rows []struct {
			ID         string
			Calibrated *struct{ Predicted float64 }
			StepS      *struct{ Predicted, Low, High float64 } `json:"step_s"`
			Staleness  *float64                                `json:"staleness_mean"`
			Reason     string
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 3 || got.Rows[0].StepS == nil || got.Rows[0].Calibrated != nil || got.Rows[1].Calibrated == nil || got.Rows[1].Staleness == nil ||
		got.Rows[2].StepS != nil || !strings.Contains(got.Rows[2].Reason, `"bird-9b" is not known`) {
		t.Errorf("%s", out)
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "<svg") {
		t.Errorf("the page: %v", err)
	}
	if code, out, stderr := headway(t, "reproduce", "--cases", serve); code != 0 || !strings.Contains(out, "each token, ms") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	for want, args := range map[string][]string{
		"no such file":                   {"--cases", filepath.Join(dir, "none.csv")},
		"has no column id, family":       {"--cases", file("other.csv", "a,b\n1,2\n")},
		"the table is empty":             {"--cases", file("empty.csv", "")},
		"no column dtype":                {"--cases", file("less.csv", strings.Replace(servingTable, "dtype", "type", 1))},
		`there is no row "nine"`:         {"--cases", runs, "--calibrate-on", "nine"},
		"row three cannot calibrate":     {"--cases", runs, "--calibrate-on", "three"},
		"neither a case's name nor":      {"--cases", runs, "verl"},
		"--calibrate-on names rows of a": {"--calibrate-on", "one"},
		"are for tables of runs":         {"--cases", serve, "--calibrate-on", "dec"},
	} {
		if code, _, stderr := headway(t, append([]string{"reproduce"}, args...)...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %s, want %q", args, code, stderr, want)
		}
	}
}
