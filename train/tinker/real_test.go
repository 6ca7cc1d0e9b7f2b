package tinker

import (
	"math"
	"os"
	"testing"
	"time"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
)

// realOptions are those of a trainer at the service that the environment names, such as a SkyRL server on this machine:
//
//	HEADWAY_TINKER_URL=http://127.0.0.1:8000 HEADWAY_TINKER_BASE=Qwen/Qwen3-0.6B go test -run Real ./train/tinker
//
// HEADWAY_TINKER_KEY is its key, where it wants one.
func realOptions(t *testing.T) Options {
	t.Helper()
	url, base := os.Getenv("HEADWAY_TINKER_URL"), os.Getenv("HEADWAY_TINKER_BASE")
	if url == "" || base == "" {
		t.Skip("HEADWAY_TINKER_URL and HEADWAY_TINKER_BASE name no service")
	}
	s, err := service.Open(t.Context(), service.Options{URL: url, Key: os.Getenv("HEADWAY_TINKER_KEY"), Name: "headway test", Patience: 20 * time.Second, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	o := options(t)
	o.Session, o.Model, o.LearningRate = s, service.ModelOptions{Base: base, Rank: 8, Seed: 7}, 3e-3
	o.Run = "test-" + time.Now().UTC().Format("20060102T150405") // names are the service's for good
	return o
}

// rewarded is the answer that realBatch rewards, others are those that it does not.
var rewarded, others = int32(41), []int32{9, 23, 30}

// realBatch has groups of four answers to one prompt each, with the log-probs of the model as it is, of which one is rewarded.
func realBatch(t *testing.T, tr *Trainer) port.Batch {
	t.Helper()
	b := port.Batch{Lease: loop.LeaseID(tr.version + 1), Attempt: 1, Version: tr.version}
	for g := range int32(2) {
		group := port.Group{ID: loop.GroupID(g + 1), StartVersion: tr.version}
		for k, answer := range append([]int32{rewarded}, others...) {
			s := port.Sample{ID: port.RolloutID{Group: group.ID, Sample: int32(k), Attempt: 1}, Tokens: []int32{5 + g, 6, 7, answer, answer + 1},
				LossMask: []uint8{0, 0, 0, 1, 1}, Versions: []loop.Version{-1, -1, -1, tr.version, tr.version}}
			if answer == rewarded {
				s.Reward = 1
			}
			s.Logprobs = append([]float32{0}, realLogprobs(t, tr, s.Tokens)...)
			s.Logprobs[1], s.Logprobs[2] = 0, 0
			group.Samples = append(group.Samples, s)
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// realLogprobs are those of the tokens after the first under the trainer's model as it is.
func realLogprobs(t *testing.T, tr *Trainer, tokens []int32) []float32 {
	t.Helper()
	n := len(tokens) - 1
	ones := make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}
	output, err := tr.model.Forward(t.Context(), []service.Datum{{Tokens: tokens[:n], Targets: tokens[1:], Weights: ones}}, service.Loss{Name: "cross_entropy"})
	if err != nil {
		t.Fatal(err)
	}
	return output.Logprobs[0]
}

// TestRealServiceLearns: at a real service, under a loss of its own and under one of ours, three steps make the rewarded tokens
// likelier each, on-policy data is told to be that, and another process that goes back to version 1 finds its log-probs.
func TestRealServiceLearns(t *testing.T) {
	for _, kind := range []grpo.Kind{grpo.PPOClip, grpo.TIS} {
		o := realOptions(t)
		o.Run += "-" + string(kind)
		o.Correction.Kind = kind
		tr, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Initialize(t.Context()); err != nil {
			t.Fatal(err)
		}
		tokens := []int32{5, 6, 7, rewarded, rewarded + 1}
		series := [][]float32{realLogprobs(t, tr, tokens)}
		for range 3 {
			report, err := tr.Train(t.Context(), realBatch(t, tr))
			if err != nil {
				t.Fatal(err)
			}
			series = append(series, realLogprobs(t, tr, tokens))
			if math.Abs(report.MeanLogRatio) > 0.01 || report.ClipFraction != 0 || report.Rollouts != 8 || report.TokenLag[0].Tokens != 16 {
				t.Errorf("%s: an on-policy step reports %+v", kind, report)
			}
			t.Logf("%s: version %d, norm %g, metrics %v, log-probs %v", kind, tr.version, report.GradNorm, report.Metrics, series[len(series)-1])
		}
		for i := range 3 {
			if before, after := series[i][2]+series[i][3], series[i+1][2]+series[i+1][3]; after <= before {
				t.Errorf("%s: step %d took the rewarded tokens from %g to %g", kind, i, before, after)
			}
		}
		again, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Restore(t.Context(), 1, 0); err != nil {
			t.Fatal(err)
		}
		restored := realLogprobs(t, again, tokens)
		for k, x := range restored {
			if math.Abs(float64(x-series[1][k])) > 1e-3 {
				t.Errorf("%s: restored, version 1 has the log-probs %v, it had %v", kind, restored, series[1])
				break
			}
		}
	}
}
