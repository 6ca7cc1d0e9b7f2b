package tinker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/internal/tinker/tinkertest"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
)

// servers are services in the manner of those that there are.
func servers() map[string]tinkertest.Options {
	return map[string]tinkertest.Options{
		"Tinker": {Order: tinkertest.BySequence, Encoding: tinkertest.Protobuf, Vocabulary: vocabulary, MostData: 12},
		"TuFT":   {Order: tinkertest.Strict, Encoding: tinkertest.Protobuf, Vocabulary: vocabulary, MostData: 12},
		"SkyRL":  {Order: tinkertest.ByArrival, Encoding: tinkertest.JSON, Vocabulary: vocabulary, MostData: 12},
	}
}

// serve begins a service and a session there.
func serve(t *testing.T, o tinkertest.Options) (*tinkertest.Service, *service.Session) {
	t.Helper()
	s := tinkertest.New(o)
	t.Cleanup(s.Close)
	session, err := service.Open(t.Context(), service.Options{URL: s.URL(), Dial: s.Dial, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() }) // its service is closed right after
	return s, session
}

// at is a trainer at a service, at version 0.
func at(t *testing.T, session *service.Session, change func(*Options)) *Trainer {
	t.Helper()
	o := options(t)
	o.Session, o.Model.Base = session, "test/base"
	if change != nil {
		change(&o)
	}
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr
}

// allLogprobs are the log-probs of every token after every other under the saved state of a version.
func allLogprobs(t *testing.T, session *service.Session, v *Versions, version loop.Version) []float64 {
	t.Helper()
	path, err := v.statePath(version)
	if err != nil {
		t.Fatal(err)
	}
	var d service.Datum
	for before := range int32(vocabulary) {
		for token := range int32(vocabulary) {
			d.Tokens, d.Targets, d.Weights = append(d.Tokens, before), append(d.Targets, token), append(d.Weights, 1)
		}
	}
	var output service.Output
	for range 2 { // a fault may have waited for this
		var m *service.Model
		if m, err = session.NewModel(t.Context(), service.ModelOptions{Base: "test/base", Rank: 1}); err != nil {
			continue
		}
		if err = m.LoadState(t.Context(), path); err != nil {
			continue
		}
		if output, err = m.Forward(t.Context(), []service.Datum{d}, service.Loss{Name: "cross_entropy"}); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(output.Logprobs[0]))
	for i, x := range output.Logprobs[0] {
		out[i] = float64(x)
	}
	return out
}

// TestServiceStepsAreGRPOs: over the wire of every kind of server, in several requests a pass, steps leave the policy that
// grpo's own derivatives leave.
func TestServiceStepsAreGRPOs(t *testing.T) {
	for name, server := range servers() {
		for _, kind := range []grpo.Kind{grpo.PPOClip, grpo.CISPO, grpo.TIS, grpo.DecoupledPPO} {
			for _, minibatches := range []int{1, 2} {
				synctest.Test(t, func(t *testing.T) {
					_, session := serve(t, server)
					tr := at(t, session, func(o *Options) { o.Correction.Kind, o.Minibatches = kind, minibatches })
					want := newToy(1) // logits are log-probs, up to what is the same for a whole row
					want.epsilon = 1e-12
					copy(want.weights, allLogprobs(t, session, tr.opt.Versions, 0))
					rng := rand.New(rand.NewPCG(8, 8))
					for version := range loop.Version(3) {
						b := batch(rng, want, version)
						got, err := tr.Train(t.Context(), b)
						if err != nil {
							t.Fatalf("%s, %s: %v", name, kind, err)
						}
						report, norm := reference(want, b, tr.opt)
						for i, x := range allLogprobs(t, session, tr.opt.Versions, version+1) {
							if w := want.logp(int32(i/vocabulary), int32(i%vocabulary)); math.Abs(x-w) > 1e-4 {
								t.Fatalf("%s, %s in %d minibatches, version %d: log-prob %d is %g, want %g", name, kind, minibatches, version+1, i, x, w)
							}
						}
						if math.Abs(got.Loss-report.All.MeanLoss()) > 1e-4 || math.Abs(got.MeanLogRatio-report.All.MeanLogRatio()) > 1e-4 || math.Abs(got.GradNorm-norm) > 1e-4 || got.Metrics["loss:sum"] == 0 {
							t.Errorf("%s, %s: report %+v", name, kind, got)
						}
					}
				})
			}
		}
	}
}

// TestServiceFaults: at every kind of server, whatever is lost or fails and wherever, two steps leave what they leave
// undisturbed: no gradient is ever added twice, and none is stepped along in part.
func TestServiceFaults(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	batches := []port.Batch{batch(rng, newToy(5), 0), batch(rng, newToy(5), 1)}
	for name, server := range servers() {
		faults := []tinkertest.Fault{{}}
		for _, operation := range []string{"forward_backward", "forward", "optim_step", "save_weights", "save_weights_for_sampler", "retrieve_future", "create_model", "load_weights"} {
			for _, f := range []tinkertest.Fault{{LoseAnswer: true}, {LoseRequest: true}, {LoseFuture: true}, {Fails: "out of memory"}, {Status: 500}, {Status: 503}} {
				f.Operation, f.Skip = operation, rng.IntN(5) // a pass is of several requests
				faults = append(faults, f)
			}
		}
		for _, kind := range []grpo.Kind{grpo.PPOClip, grpo.TIS} {
			var want []float64
			for i, fault := range faults {
				if kind == grpo.TIS && i%6 != 0 && fault.Operation != "forward" {
					continue // the rest of a step is the same
				}
				synctest.Test(t, func(t *testing.T) {
					s, session := serve(t, server)
					tr := at(t, session, func(o *Options) { o.Correction.Kind, o.Logf = kind, nil })
					if fault.Operation == "create_model" || fault.Operation == "load_weights" {
						s.Fail(tinkertest.Fault{Operation: "optim_step", LoseAnswer: true}) // the next attempt needs both
						fault.Skip = 0
					}
					if i > 0 {
						s.Fail(fault)
					}
					what := fmt.Sprintf("%s, %s, fault %+v", name, kind, fault)
					for _, b := range batches {
						trainUntil(t, tr, b, what)
					}
					got := allLogprobs(t, session, tr.opt.Versions, 2)
					if i == 0 {
						want = got
					} else if !slices.Equal(got, want) {
						t.Errorf("%s: the policy is another than without it", what)
					}
				})
			}
		}
	}
}

// trainUntil trains on a batch as often as the loop might, and fails if that never succeeds.
func trainUntil(t *testing.T, tr *Trainer, b port.Batch, what string) (failures int) {
	t.Helper()
	for try := 1; ; try++ {
		_, err := tr.Train(t.Context(), b)
		if err == nil {
			return try - 1
		}
		if try == 3 {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// TestServiceRestarts: a service that comes back without its sessions and models costs an attempt and no more.
func TestServiceRestarts(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	batches := []port.Batch{batch(rng, newToy(5), 0), batch(rng, newToy(5), 1)}
	for name, server := range servers() {
		synctest.Test(t, func(t *testing.T) {
			s, session := serve(t, server)
			tr := at(t, session, nil)
			trainAll(t, tr, batches[0])
			s.Forget()
			trainUntil(t, tr, batches[1], name)
			other := at(t, session, func(o *Options) { o.Run = "other" })
			trainAll(t, other, batches...)
			if !slices.Equal(allLogprobs(t, session, tr.opt.Versions, 2), allLogprobs(t, session, other.opt.Versions, 2)) {
				t.Errorf("%s: the policy is another than without a restart", name)
			}
		})
	}
}

// TestServiceForgetsPruned: what is pruned is deleted at the service, and what is kept can still be gone back to.
func TestServiceForgetsPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, session := serve(t, servers()["Tinker"])
		v := versions(t, t.TempDir(), VersionsOptions{Delete: session.Delete, Logf: func(format string, args ...any) { t.Errorf(format, args...) }})
		tr := at(t, session, func(o *Options) { o.Versions = v })
		rng := rand.New(rand.NewPCG(9, 9))
		for version := range loop.Version(3) {
			trainAll(t, tr, batch(rng, newToy(5), version))
		}
		if n := len(s.Paths()); n != 8 {
			t.Fatalf("%d paths of four versions", n)
		}
		if err := v.Prune(2); err != nil {
			t.Fatal(err)
		}
		v.deletions.Wait()
		for _, path := range s.Paths() {
			if !strings.HasSuffix(path, "v000002") && !strings.HasSuffix(path, "v000003") {
				t.Errorf("%s is there still", path)
			}
		}
		if err := tr.Restore(t.Context(), 2, 0); err != nil || len(s.Paths()) != 5 { // what it is sampled from, once more
			t.Errorf("%v, %v", err, s.Paths())
		}
	})
}
