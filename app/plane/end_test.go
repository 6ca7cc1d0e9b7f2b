package plane

import (
	"errors"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	environment "github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/remote"
)

// A control plane that was told to drain tells whoever holds a claim that it is stopping, not that the
// run has ended: it goes on when it is started again.
func TestADrainedControlPlaneHasNotEndedItsRun(t *testing.T) {
	workers, err := environment.New(environment.Options{Name: "a", ClaimTTL: time.Minute, Vocabulary: 8})
	if err != nil {
		t.Fatal(err)
	}
	workers.Drain()
	(&Plane{Record: &record.Record{Parts: &parts.Parts{Workers: workers}}}).farewell(t.Context(), true)
	_, claimed := workers.Claim(t.Context(), protocol.ClaimRequest{Worker: "w"})
	_, sampled := workers.Sample(t.Context(), "g1-s0-a1", protocol.SampleRequest{Worker: "w", Prompt: []int32{3}, MaxTokens: 1})
	for _, err := range []error{claimed, sampled} {
		if protocol.RefusalOf(err).Code != protocol.CodeUnavailable {
			t.Errorf("whoever calls a drained control plane is told %v", err)
		}
	}
}

// A trainer that comes to a finished run is told its newest version, and that there is no work. No version is to be made
// anew.
func TestAFinishedRunIsNotInitializedAgain(t *testing.T) {
	versions, err := weights.Open(t.TempDir(), weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := remote.New(remote.Options{Weights: versions, Clock: func() int64 { return 0 }, Lease: time.Minute, SyncEvery: 1, Steps: 3, Run: "r", Vocabulary: 8})
	if err != nil {
		t.Fatal(err)
	}
	p := &Plane{Record: &record.Record{Parts: &parts.Parts{Remote: trainer}}}
	if err := p.standAtEnd(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	reply, err := trainer.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 3})
	if err != nil || reply.Action != protocol.ActionTrain || reply.Version != 3 {
		t.Errorf("%+v, %v: want the version of the run's end", reply, err)
	}
	if _, err := trainer.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", WaitS: 1}); !errors.Is(err, protocol.ErrRunEnded) {
		t.Errorf("%v, want the run's end", err)
	}
}
