package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
)

const (
	distillSteps = 60
	// distillShown is how many steps at either end are compared.
	distillShown = 5
	// distillShare is the most of the divergence that may be left at the end.
	distillShare = 0.75
)

// TestDistillLearns runs examples/distill as it is, but for its addresses, its length and where its files lie. The
// student has to come nearer to its teacher, by weights that the engine takes while it samples.
func TestDistillLearns(t *testing.T) {
	student := os.Getenv("HEADWAY_TEST_VLLM_DISTILL")
	if student == "" {
		t.Skip("HEADWAY_TEST_VLLM_DISTILL names no server: make test-engines")
	}
	const root = "../../../.."
	dir := t.TempDir()
	program := filepath.Join(dir, "headway")
	if out, err := exec.Command("go", "build", "-o", program, root+"/cmd/headway").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(root + "/examples/distill/run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	port, err := plane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	written := string(text)
	for old, now := range map[string]string{
		"http://127.0.0.1:8000": student, "http://127.0.0.1:8001": os.Getenv("HEADWAY_TEST_VLLM_DISTILL_PEER"),
		"examples/distill/student": directories(t)[0],
	} {
		if !strings.Contains(written, old) {
			t.Fatalf("examples/distill/run.yaml does not say %s", old)
		}
		written = strings.ReplaceAll(written, old, now)
	}
	document := filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(document, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(dir, "runs")
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p := &learnPlane{t: t, dir: root, program: program, address: address, metrics: filepath.Join(runs, "r", "metrics.jsonl"),
		args: []string{document, "--listen", address, "--name", "r", "--dir", runs, "--set", fmt.Sprintf("trainer.steps=%d", distillSteps)}}
	t.Cleanup(p.kill)
	p.start()
	trainer := exec.Command(os.Getenv("HEADWAY_TEST_PYTHON"), "examples/distill/train.py", "--url", "http://"+address)
	trainer.Dir, trainer.Env = root, append(os.Environ(), "PYTHONPATH=clients/python/src")
	var said bytes.Buffer
	trainer.Stdout, trainer.Stderr = &said, &said
	if err := trainer.Start(); err != nil {
		t.Fatal(err)
	}
	trained := make(chan error, 1)
	go func() { trained <- trainer.Wait() }()
	t.Cleanup(func() { _ = trainer.Process.Kill() })
	p.await(distillSteps)
	if err := <-trained; err != nil {
		t.Errorf("the trainer: %v\n%s", err, said.String())
	}
	<-p.exited
	judgeDistilled(t, p.steps())
	if out, err := exec.Command(program, "replay", filepath.Join(runs, "r")).CombinedOutput(); err != nil {
		t.Errorf("replay: %v: %s", err, out)
	}
}

// judgeDistilled compares the steps at either end.
func judgeDistilled(t *testing.T, steps []learnStep) {
	mean := func(steps []learnStep, of func(learnStep) float64) float64 {
		sum := 0.0
		for _, s := range steps {
			sum += of(s)
		}
		return sum / float64(len(steps))
	}
	divergence := func(s learnStep) float64 { return s.Metrics["teacher/reverse_kl"] }
	right := func(s learnStep) float64 { return s.Reward }
	first, last := steps[:distillShown], steps[len(steps)-distillShown:]
	begun, ended := mean(first, divergence), mean(last, divergence)
	stale := mean(steps, func(s learnStep) float64 { return s.Staleness })
	t.Logf("progress: %d steps: KL(student ‖ teacher) %.3f -> %.3f nats a token, right %.3f -> %.3f, staleness %.2f",
		len(steps), begun, ended, mean(first, right), mean(last, right), stale)
	if !(begun > 0) || !(ended < distillShare*begun) {
		t.Errorf("the divergence from the teacher went from %.3f to %.3f: want at most %g of it", begun, ended, distillShare)
	}
	if absent := mean(steps, func(s learnStep) float64 { return s.Metrics["teacher/absent"] }); absent != 0 {
		t.Errorf("%.2f sampled tokens a step have no teacher's row, want none", absent)
	}
	if stale == 0 {
		t.Error("no batch was stale: no weights were switched while rollouts were in flight")
	}
}
