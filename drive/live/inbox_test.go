package live_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// deafEnv's tools take their time, whatever the context says.
type deafEnv struct{ took time.Duration }

func (e deafEnv) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	if _, err := s.Sample(ctx, port.SampleRequest{Prompt: []int32{7}, MaxTokens: 2}); err != nil {
		return port.Sample{}, err
	}
	time.Sleep(e.took)
	return port.Sample{}, errors.New("the tool failed")
}

// TestEndWithMuchOutstanding: a run ends though attempts of lost engines, which nobody waits for, outnumber its slots.
func TestEndWithMuchOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.EngineSlots = []int{16}
		cfg.MaxAttempts = 100
		w := newWorld(cfg)
		w.change = func(o *live.Options) { o.Environment = deafEnv{20 * time.Second}; o.RejoinAfter = time.Second }
		r := w.runtime(t, nil)
		for i := range 4 {
			time.AfterFunc(time.Duration(2+3*i)*time.Second, func() { r.EngineLost("engine-0") })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
		defer cancel()
		if _, err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// turnsDeaf: tools of rollouts that begin before a time end at one instant, whatever the context says.
type turnsDeaf struct {
	fakeEnvironment
	began time.Time
	until time.Duration
}

func (e turnsDeaf) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	early := time.Since(e.began) < e.until-2*time.Second
	out, err := e.fakeEnvironment.Play(ctx, t, s)
	if early && err != nil {
		time.Sleep(e.until - time.Since(e.began))
	}
	return out, err
}

// sluggish takes long for one append, at a time.
type sluggish struct {
	*memoryStore
	began    time.Time
	from, to time.Duration
	slowed   bool
}

func (s *sluggish) Append(lines [][]byte) error {
	if now := time.Since(s.began); !s.slowed && now > s.from && now < s.to && bytes.Contains(bytes.Join(lines, nil), []byte("interrupt-rollout")) {
		s.slowed = true
		time.Sleep(s.to - now)
	}
	return s.memoryStore.Append(lines)
}

// TestMuchEndsWhileTheStoreWaits: nor does that many ends during an append stop the goroutine that owns the loop.
func TestMuchEndsWhileTheStoreWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.EngineSlots = []int{16}
		cfg.MaxAttempts = 100
		cfg.Sync = loop.SyncRestart
		cfg.TrainSteps = 200
		w := newWorld(cfg)
		began := time.Now()
		store := &sluggish{memoryStore: w.store, began: began, from: 12700 * time.Millisecond, to: 13010 * time.Millisecond}
		w.change = func(o *live.Options) {
			o.Environment = turnsDeaf{fakeEnvironment{toolNS: func(port.RolloutID) int64 { return 300e6 }}, began, 13 * time.Second}
			o.RejoinAfter, o.Store = time.Second, store
			o.Patient = true
		}
		r := w.runtime(t, nil)
		for i := range 4 {
			time.AfterFunc(time.Duration(1+2*i)*time.Second, func() { r.EngineLost("engine-0") })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		if _, err := r.Run(ctx); err != nil || !store.slowed {
			t.Errorf("%v, slowed %v", err, store.slowed)
		}
	})
}
