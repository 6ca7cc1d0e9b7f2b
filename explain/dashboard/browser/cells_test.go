package browser

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/store/weights"
)

// cellsDocument is a run whose control plane and cell b have an engine each.
const cellsDocument = `
model: {path: %q}
store: {dir: %q, nats: {listen: %q}}
engines:
  - {kind: vllm, name: a, url: %q, slots: 4}
  - {kind: vllm, name: c, url: %q, slots: 2, cell: b}
environment: {kind: remote, prompt_tokens_max: 64, response_tokens_max: 64}
rollout: {group_size: 2}
train: {batch: 4}
trainer: {steps: 5}
`

// The processes of a run with cells are on the overview, one that nobody has heard of too.
func TestCellsAreShown(t *testing.T) {
	program := headway(t)
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tensors, err := weights.AppendHeader(nil, []weights.Entry{{Name: "lm_head.weight", DType: weights.F32, Shape: []int{1}}})
	if err != nil {
		t.Fatal(err)
	}
	engine := func() string {
		s := enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: enginetest.Policy{Vocabulary: 64, EOS: 1, Length: 8}, Context: 256, Weights: "as started"})
		t.Cleanup(s.Close)
		return s.URL()
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	write("model/config.json", []byte(`{"vocab_size": 64, "max_position_embeddings": 256}`))
	write("model/"+weights.ModelName, append(tensors, 0, 0, 0, 0))
	write("run.yaml", fmt.Appendf(nil, cellsDocument, filepath.Join(dir, "model"), filepath.Join(dir, "runs"), listen, engine(), engine()))

	s := serveProgram(t, program, "serve", filepath.Join(dir, "run.yaml"), "--name", "celled", "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url+"#/overview")
	p.ready("overview")
	p.waitText("not heard of yet")
	p.waitText("0 of 1\u00a0cell heard")

	cell := exec.Command(program, "cell", "b", filepath.Join(dir, "run.yaml"), "--name", "celled", "--listen", "127.0.0.1:0")
	cell.Stderr = os.Stderr
	if err := cell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cell.Process.Kill()
		_ = cell.Wait()
	})
	p.waitText("1\u00a0cell, all heard")
	p.waitText("First to bind")
	for _, l := range []look{wide, {390, 844, true}} {
		p.see(l)
		p.picture("overview-cells-" + l.String())
	}
}
