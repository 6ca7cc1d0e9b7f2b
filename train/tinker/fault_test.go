package tinker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
)

// TestFaults: whichever operation of a step fails, without its effect or with it, the next attempt leaves the
// weights that an undisturbed one does, and no model is used after a failure.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		kind        grpo.Kind
		minibatches int
	}{{grpo.PPOClip, 1}, {grpo.TIS, 2}} {
		o := options(t)
		o.Correction.Kind, o.Minibatches = c.kind, c.minibatches
		calm := newHost()
		tr := started(t, o, calm)
		before := len(calm.calls)
		first, second := batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0), batch(rand.New(rand.NewPCG(2, 2)), newToy(5), 1)
		trainAll(t, tr, first, second)
		want := calm.weights(t, o.Versions, 2)
		for call := before; call < len(calm.calls); call++ {
			for _, late := range []bool{false, true} {
				o := options(t)
				o.Correction.Kind, o.Minibatches = c.kind, c.minibatches
				h := newHost()
				tr := started(t, o, h)
				fault := func(n int) error {
					if n == call {
						return errFault
					}
					return nil
				}
				if late {
					h.after = fault
				} else {
					h.before = fault
				}
				name := fmt.Sprintf("%s, operation %d (%s), late %v", c.kind, call, calm.calls[call], late)
				failures := 0
				for _, b := range []port.Batch{first, second} {
					_, err := tr.Train(t.Context(), b)
					if errors.Is(err, errFault) {
						failures++
						_, err = tr.Train(t.Context(), b)
					}
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
				if failures != 1 || h.models != 2 || !slices.Equal(h.weights(t, o.Versions, 2), want) {
					t.Errorf("%s: %d failures, %d models; weights differ: %v", name, failures, h.models, !slices.Equal(h.weights(t, o.Versions, 2), want))
				}
				for i, what := range h.calls {
					if i > call && strings.HasPrefix(what, "1 ") {
						t.Errorf("%s: afterwards the model was asked for %s", name, what)
					}
				}
			}
		}
	}
}

func trainAll(t *testing.T, tr *Trainer, batches ...port.Batch) {
	t.Helper()
	for _, b := range batches {
		if _, err := tr.Train(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFaultOfRestore: an attempt that cannot load the state leaves the next one to do so.
func TestFaultOfRestore(t *testing.T) {
	o, h := options(t), newHost()
	tr := started(t, o, h)
	b := batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0)
	failing := 3
	h.before = func(int) error {
		if failing--; failing >= 0 {
			return errFault
		}
		return nil
	}
	for range 3 { // the pass, then making a model, twice
		if _, err := tr.Train(t.Context(), b); !errors.Is(err, errFault) {
			t.Fatal(err)
		}
	}
	trainAll(t, tr, b)
	calm, other := newHost(), options(t)
	trainAll(t, started(t, other, calm), b)
	if !slices.Equal(h.weights(t, o.Versions, 1), calm.weights(t, other.Versions, 1)) {
		t.Error("the weights differ from those of a step without a fault")
	}
}

// TestCancelled: a step that is cancelled is made again from the published version.
func TestCancelled(t *testing.T) {
	o, h := options(t), newHost()
	tr := started(t, o, h)
	b := batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0)
	ctx, cancel := context.WithCancel(t.Context())
	h.after = func(int) error { cancel(); return nil } // the pass is the last that happens
	if _, err := tr.Train(ctx, b); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	h.after = nil
	trainAll(t, tr, b)
	if h.models != 2 || o.Versions.Newest() != 1 {
		t.Errorf("%d models, newest version %d", h.models, o.Versions.Newest())
	}
}

// TestUnrecorded: a version that is saved and could not be recorded is recorded by the next attempt at the step, which
// trains nothing; another batch starts from the version before.
func TestUnrecorded(t *testing.T) {
	o, h := options(t), newHost()
	tr := started(t, o, h)
	full := errors.New("no space left on device")
	b := batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0)
	o.Versions.options.Fence = func() error { return full }
	if _, err := tr.Train(t.Context(), b); !errors.Is(err, full) {
		t.Fatal(err)
	}
	if _, there, err := o.Versions.Committed(1); there || err != nil {
		t.Fatalf("version 1 is there: %v, %v", there, err)
	}
	o.Versions.options.Fence = nil
	calls := len(h.calls)
	report, err := tr.Train(t.Context(), b)
	if err != nil || len(h.calls) != calls || report.Rollouts != 16 {
		t.Fatalf("%v, report %+v, calls %v", err, report, h.calls[calls:])
	}
	if lease, there, err := o.Versions.Committed(1); lease != 1 || !there || err != nil {
		t.Fatalf("version 1 is of lease %d, %v, %v", lease, there, err)
	}
	next := batch(rand.New(rand.NewPCG(2, 2)), newToy(5), 1)
	o.Versions.options.Fence = func() error { return full }
	if _, err := tr.Train(t.Context(), next); !errors.Is(err, full) {
		t.Fatal(err)
	}
	o.Versions.options.Fence = nil
	other := batch(rand.New(rand.NewPCG(3, 3)), newToy(5), 1)
	other.Lease = 9
	trainAll(t, tr, other)
	calm, undisturbed := newHost(), options(t)
	trainAll(t, started(t, undisturbed, calm), b, other)
	if !slices.Equal(h.weights(t, o.Versions, 2), calm.weights(t, undisturbed.Versions, 2)) {
		t.Error("the second batch did not start from version 1")
	}
}

// TestConflict: a version that is there as another is refused, and is not trained on from.
func TestConflict(t *testing.T) {
	o, h := options(t), newHost()
	tr := started(t, o, h)
	if err := o.Versions.record(1, 77, "tinker://a", "tinker://b"); err != nil {
		t.Fatal(err)
	}
	b := batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0)
	if _, err := tr.Train(t.Context(), b); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "lease 77") {
		t.Fatal(err)
	}
	if tr.version != 0 || tr.model != nil {
		t.Errorf("the trainer is at version %d", tr.version)
	}
}

// TestResume: a trainer of another process, after a crash between the service's save and the record or without one, goes on as
// the first one would have, the state of the optimizer included.
func TestResume(t *testing.T) {
	for _, crash := range []bool{false, true} {
		o, h := options(t), newHost()
		rng := rand.New(rand.NewPCG(4, 4))
		tr := started(t, o, h)
		batches := []port.Batch{batch(rng, newToy(5), 0), batch(rng, newToy(5), 1), batch(rng, newToy(5), 2)}
		trainAll(t, tr, batches[:2]...)
		if crash {
			o.Versions.options.Fence = func() error { return errFault }
			if _, err := tr.Train(t.Context(), batches[2]); !errors.Is(err, errFault) {
				t.Fatal(err)
			}
			o.Versions.options.Fence = nil
		}
		versions, err := OpenVersions(o.Versions.dir, VersionsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Versions = versions
		again, err := newTrainer(o, h.newModel)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Restore(t.Context(), versions.Newest(), 0); err != nil {
			t.Fatal(err)
		}
		trainAll(t, again, batches[2])
		calm, undisturbed := newHost(), options(t)
		trainAll(t, started(t, undisturbed, calm), batches...)
		if versions.Newest() != 3 || !slices.Equal(h.weights(t, versions, 3), calm.weights(t, undisturbed.Versions, 3)) {
			t.Errorf("crash %v: newest version %d, or other weights than without a restart", crash, versions.Newest())
		}
	}
}

// TestRestoreWhereItIs: going to the version that the model has asks nothing of the service; any other does.
func TestRestoreWhereItIs(t *testing.T) {
	o, h := options(t), newHost()
	tr := started(t, o, h)
	b := batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0)
	trainAll(t, tr, b)
	calls := len(h.calls)
	if err := tr.Restore(t.Context(), 1, 0); err != nil || len(h.calls) != calls {
		t.Errorf("%v, %v", err, h.calls[calls:])
	}
	if err := tr.Restore(t.Context(), 0, 0); err != nil || strings.Join(h.calls[calls:], " ") != "2 create 2 load 2 save sampler" {
		t.Errorf("%v, %v", err, h.calls[calls:])
	}
	r, err := o.Versions.read(0)
	if err != nil || r.Sampler != "tinker://2/sampler/r-v000000" || r.State != "tinker://1/state/r-v000000" || !slices.Equal(r.Former, []string{"tinker://1/sampler/r-v000000"}) {
		t.Errorf("version 0 is recorded as %+v, %v", r, err)
	}
	if err := tr.Restore(t.Context(), 5, 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if h.unloaded != 0 {
		t.Errorf("%d models were given back that versions are sampled from", h.unloaded)
	}
	made := len(h.calls)
	h.before = func(call int) error {
		if call > made {
			return errors.New("it is busy")
		}
		return nil
	}
	if err := tr.Restore(t.Context(), 1, 0); err == nil || h.unloaded != h.models-2 {
		t.Errorf("%v: of %d models %d were given back, want the one that was not restored", err, h.models, h.unloaded)
	}
	h.before = nil
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}
