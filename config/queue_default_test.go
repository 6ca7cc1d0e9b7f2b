package config

import "testing"

// A run whose rollouts this program makes waits instead of dropping, unless the document says anything of its queue, is another's rules,
// follows a goal, or is simulated.
func TestQueueByDefault(t *testing.T) {
	for _, c := range []struct {
		document, policy string
		eta              float64
	}{
		{"", "bounded", 1},
		{"rollout: {concurrency: 256}", "bounded", 1},
		{"sync: {every: 3}", "bounded", 3},
		{"environment: {service_time: {kind: fixed, mean_s: 0.1}}", "bounded", 2},
		{"engines: [{slots: 64, decode_step_s: 0.01}]\ntrain: {batch: 128}", "bounded", 1.5},
		{"queue: {factor: 2}", "drop", 0},
		{"queue: {eta: 2.5}", "bounded", 2.5},
		{"queue: {eta: 0}", "bounded", 0},
		{"queue: {policy: block}", "block", 0},
		{"preset: pipelinerl", "drop", 0},
		{"preset: areal", "bounded", 4},
		{"control: {target: 2}", "drop", 0},
		{"schedule: synchronous", "block", 0},
		{"modelled: {train: {utilization: 0.9}}", "drop", 0},
		{"trainer: {kind: remote}", "bounded", 1},
		{"trainer: {kind: remote}\nqueue: {factor: 2}", "drop", 0},
		{"trainer: {kind: remote}\nenvironment: {kind: remote, name: x}", "drop", 0},
		{"engines: [{kind: vllm, url: 'http://localhost:8000'}]\ntrainer: {kind: remote}\nenvironment: {kind: remote, name: x}", "drop", 0},
	} {
		got := mustParse(t, c.document).WithDefaults()
		if got.Queue.Policy != c.policy || got.Queue.Eta != c.eta {
			t.Errorf("%q: policy %s with eta %g, want %s with %g", c.document, got.Queue.Policy, got.Queue.Eta, c.policy, c.eta)
		}
		if again := got.WithDefaults(); again.Queue.Policy != c.policy || again.Queue.Eta != c.eta {
			t.Errorf("%q: a second time policy %s with eta %g", c.document, again.Queue.Policy, again.Queue.Eta)
		}
	}
}

func mustParse(t *testing.T, document string) Config {
	t.Helper()
	c, err := Parse("test", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
