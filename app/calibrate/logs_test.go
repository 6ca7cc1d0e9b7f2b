package calibrate

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// unpack unpacks an archive of a framework's files, written by its own tracker's library, and returns the folder.
func unpack(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		to := filepath.Join(dir, filepath.Clean(header.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(files)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// truth is what the run did whose log a framework wrote.
type truth struct {
	Steps []struct {
		Start    float64 `json:"start_s"`
		End      float64 `json:"end_s"`
		Period   float64 `json:"period_s"`
		Response float64 `json:"response_tokens"`
	} `json:"steps"`
}

// The W&B files of frameworks give the train step, the period and the mean response of the run that they are of.
func TestLogsGiveTheTruth(t *testing.T) {
	for _, framework := range []string{"verl-fa", "verl-v1", "skyrl", "nemo-rl", "prime-rl", "roll"} {
		const within = 0.02
		t.Run(framework, func(t *testing.T) {
			dir := unpack(t, filepath.Join("..", "..", "explain", "foreign", "golden", "testdata", framework+".tar.gz"))
			var of truth
			text, err := os.ReadFile(filepath.Join(dir, "truth.json"))
			if err == nil {
				err = json.Unmarshal(text, &of)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, "truth.json")); err != nil {
				t.Fatal(err)
			}
			from := dir
			if _, err := os.Stat(filepath.Join(dir, "wandb")); err == nil {
				from = filepath.Join(dir, "wandb")
			}
			found, err := Log(t.Context(), from, "", "", func(float64, string) {})
			if err != nil {
				t.Fatal(err)
			}
			var step, period, response float64
			for _, s := range of.Steps[1:] {
				n := float64(len(of.Steps) - 1)
				step, period, response = step+(s.End-s.Start)/n, period+s.Period/n, response+s.Response/n
			}
			length, _ := found.Find("modelled.length.mean_tokens")
			if whole, ok := found.Find("modelled.length"); ok {
				length, response = whole, whole.Value // of single rollouts, which not every step has
			}
			trained, _ := found.Find("modelled.train.step_s")
			for name, v := range map[string][2]float64{"train step": {trained.Value, step}, "period": {found.RunPeriodS, period}, "response": {length.Value, response}} {
				if !(math.Abs(v[0]/v[1]-1) <= within) {
					t.Errorf("%s: %.4g, want %.4g within %.0f %%", name, v[0], v[1], 100*float64(within))
				}
			}
		})
	}
}

// A log without a known framework's keys, one that is too short, and a path that is not there are refused.
func TestLogRefuses(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short.jsonl")
	if err := os.WriteFile(short, []byte(`{"loss": 1}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{short, filepath.Join(dir, "none")} {
		if _, err := Log(t.Context(), path, "", "", func(float64, string) {}); err == nil {
			t.Errorf("%s was read", path)
		}
	}
}

// The lengths of single rollouts count where the log has no mean response, as PipelineRL's.
func TestLengthsOfSingleRolloutsAlone(t *testing.T) {
	found, err := Log(t.Context(), unpack(t, filepath.Join("..", "..", "explain", "foreign", "golden", "testdata", "pipelinerl.tar.gz")), "", "", func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	length, ok := found.Find("modelled.length")
	if !ok || length.Value < 1 || len(length.Lengths) < groupsMin {
		t.Fatalf("%+v", length)
	}
	if speed, ok := found.Find("modelled.throughput_tokens_per_s"); !ok || math.Abs(speed.Value/(64*length.Value/found.RunPeriodS)-1) > 1e-9 {
		t.Errorf("%+v", speed)
	}
}
