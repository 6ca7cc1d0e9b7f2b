package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

func TestValidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		fail := errors.New("no engine")
		r := started(t, func(o *Options) {
			o.Validation = func(_ context.Context, prompts int) ([]port.Sample, error) {
				calls++
				time.Sleep(100 * time.Second) // longer than any call waits
				if calls == 1 {
					return nil, fail
				}
				var out []port.Sample
				for _, g := range groups(1, 1, 0, prompts).Groups {
					out = append(out, g.Samples[0])
				}
				return out, nil
			}
		})
		ask := func(rank, world int) (*protocol.Lease, error) {
			req := protocol.LeaseRequest{Trainer: "a", Rank: rank, WorldSize: world, Kind: protocol.KindValidation, Prompts: 6, WaitS: 60}
			body, err := r.Lease(t.Context(), req)
			if body == nil || err != nil {
				return nil, err
			}
			return r.tryLease(req), nil
		}
		if l, err := ask(0, 2); l != nil || err != nil {
			t.Fatalf("%+v, %v: want to wait", l, err)
		}
		if _, err := ask(0, 2); !errors.Is(err, fail) {
			t.Fatalf("%v, want the failure", err)
		}
		if l, err := ask(0, 2); l != nil || err != nil {
			t.Fatalf("%+v, %v: want to wait", l, err)
		}
		seen := map[loop.GroupID]bool{}
		for rank := range 2 {
			l, err := ask(rank, 2)
			r.must(err)
			if l.Kind != protocol.KindValidation || l.Lease != 0 || l.Rollouts != 6 || l.Groups != 6 {
				t.Fatalf("lease %+v", l)
			}
			for _, s := range l.Stamps {
				seen[s.Group] = true
			}
		}
		if len(seen) != 6 || calls != 2 {
			t.Fatalf("%d prompts in the two shares after %d calls, want 6 after 2", len(seen), calls)
		}
		none := started(t, nil)
		_, err := none.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", Kind: protocol.KindValidation})
		none.refused(err, protocol.CodeNotFound, "no held-out prompts")
		_, err = none.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", Kind: "test"})
		none.refused(err, protocol.CodeInvalid, `kind is "test"`)
	})
}

// TestValidationIsAWord: a trainer that waits for a validation is not silent.
func TestValidationIsAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		r := started(t, func(o *Options) {
			o.Validation = func(ctx context.Context, n int) ([]port.Sample, error) { <-end; return nil, context.Canceled }
		})
		_, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 0})
		r.must(err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 4 { // the Python client asks for 20 s each
				_, _ = r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", Kind: protocol.KindValidation, WaitS: 20})
			}
		}()
		time.Sleep(70 * time.Second)
		if s := r.Status(); s.State == "absent" {
			t.Errorf("status says %s, silent for %g s, while it waits", s.State, s.SilentS)
		}
		_, err = r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "b", Version: 0})
		if err == nil {
			t.Error("trainer b was let in")
		}
		close(end)
		<-done
	})
}
