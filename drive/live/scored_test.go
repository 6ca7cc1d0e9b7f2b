package live_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// blobStore keeps blobs in memory, each once.
type blobStore struct {
	*memoryStore
	mu    sync.Mutex
	blobs map[port.RolloutID][][]byte
}

func (s *blobStore) PutBlob(id port.RolloutID, number int32, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(number) != len(s.blobs[id]) {
		return errors.New("blobs are not numbered one after the other")
	}
	s.blobs[id] = append(s.blobs[id], slices.Clone(data))
	return nil
}

func (s *blobStore) ReadBlob(port.RolloutID, int32, int64, []byte) error { return port.ErrNoBlob }

// branching leaves a second sequence in every other rollout, and one that is all of the environment in some.
type branching struct{ port.Environment }

func (e branching) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	out, err := e.Environment.Play(ctx, t, s)
	n := len(out.Tokens)
	if err != nil || out.Pruned || t.ID.Sample%2 == 0 {
		return out, err
	}
	out.Tokens = append(out.Tokens, 7, 8, 9, out.Tokens[n-1])
	out.LossMask = append(out.LossMask, 0, 0, 0, 1)
	out.Logprobs = append(out.Logprobs, 0, 0, 0, -1)
	out.Versions = append(out.Versions, loop.NoVersion, loop.NoVersion, loop.NoVersion, out.Versions[n-1])
	out.Breaks = []int32{int32(n), int32(n + 2)}
	return out, nil
}

// fakeTeacher takes its time, fails where it is told to, and says of every token its id and the sequence.
type fakeTeacher struct {
	takes time.Duration
	fail  func(port.RolloutID) bool
	mu    sync.Mutex
	// now is how many rollouts it scores, late how long after their end it went on with one that was given up.
	now  int
	gone int
}

func (f *fakeTeacher) Score(ctx context.Context, s *port.Sample) ([]port.Scores, error) {
	f.add(1, 0)
	defer f.add(-1, 0)
	select {
	case <-time.After(f.takes + time.Duration(s.ID.Group%7)*1_000_003):
	case <-ctx.Done():
		f.add(0, 1)
		return nil, ctx.Err()
	}
	if f.fail != nil && f.fail(s.ID) {
		return nil, errors.New("the teacher is away")
	}
	return teacherRows(s), nil
}

func (f *fakeTeacher) add(now, gone int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now, f.gone = f.now+now, f.gone+gone
}

var teacherHeader = channel.Header{Name: channel.TeacherLogprobs, DType: channel.U8, Row: []int{2}, Align: channel.Sampled}

func teacherRows(s *port.Sample) (scores []port.Scores) {
	for q := range s.Sequences() {
		var data []byte
		first, end := s.Sequence(q)
		for i := first; i < end; i++ {
			if s.LossMask[i] == 1 {
				data = append(data, byte(s.Tokens[i]), byte(q))
			}
		}
		if len(data) > 0 {
			scores = append(scores, port.Scores{Header: teacherHeader, Sequence: int32(q), Data: data})
		}
	}
	return scores
}

// TestScoredBeforeTrained: every rollout of every batch has a teacher's row for each sampled token of each sequence, under
// every rule that interrupts or gives up, with a teacher that fails at times. Failures have their own reason.
func TestScoredBeforeTrained(t *testing.T) {
	for name, change := range map[string]func(*loop.Config){
		"queue":   func(*loop.Config) {},
		"restart": func(c *loop.Config) { c.Sync = loop.SyncRestart },
		"batch":   func(c *loop.Config) { c.InterruptAtBatch, c.Redundancy = true, 1 },
		"abort":   func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 1, true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.EngineSlots, cfg.MaxAttempts = []int{4, 3}, 3
				change(&cfg)
				w := newWorld(cfg)
				teacher := &fakeTeacher{takes: 60 * time.Millisecond, fail: func(id port.RolloutID) bool { return id.Attempt == 1 && id.Group%5 == 0 && id.Sample == 0 }}
				store := &blobStore{memoryStore: w.store, blobs: make(map[port.RolloutID][][]byte)}
				resumed := 0
				w.change = func(o *live.Options) {
					o.Store, o.Scorer, o.Environment = store, teacher, branching{o.Environment}
					o.OnBatch = func(b port.Batch) {
						for _, g := range b.Groups {
							for i := range g.Samples {
								checkScored(t, store, &g.Samples[i])
								if g.Samples[i].Resumed() {
									resumed++
								}
							}
						}
					}
				}
				res, err := w.runtime(t, nil).Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v, ledger %+v: %v", res.Reason, res.Status.Ledger, err)
				}
				f := res.Summary.Failures
				if f.Scorer == 0 || f.Infra() != f.Scorer || res.Status.Ledger.Trained != 160 {
					t.Errorf("failures %+v, ledger %+v", f, res.Status.Ledger)
				}
				if resumes := name == "restart" || name == "batch"; resumes && resumed == 0 || name == "abort" && res.Status.Ledger.Discarded == 0 {
					t.Errorf("%d rollouts were resumed, ledger %+v: the test needs some", resumed, res.Status.Ledger)
				}
				if name != "queue" && teacher.gone == 0 && name != "restart" || teacher.now != 0 {
					t.Errorf("%d were given up while they were scored, %d are scored still", teacher.gone, teacher.now)
				}
			})
		})
	}
}

// checkScored holds a trained sample to what the teacher says of it.
func checkScored(t *testing.T, store *blobStore, s *port.Sample) {
	t.Helper()
	want := teacherRows(s)
	if len(s.Channels) != len(want) {
		t.Errorf("%v: %d channels of %d sequences with sampled tokens", s.ID, len(s.Channels), len(want))
		return
	}
	for i := range want {
		c := &s.Channels[i]
		if len(c.Parts) != 1 || !c.Same(want[i].Header) || c.Sequence != want[i].Sequence || c.Parts[0].Start != 0 || c.Parts[0].Skip != 0 || c.Present() != len(want[i].Data)/2 {
			t.Errorf("%v: %+v, want all rows of %+v", s.ID, c, want[i])
			return
		}
		store.mu.Lock()
		got := store.blobs[s.ID][c.Parts[0].Blob]
		store.mu.Unlock()
		if !slices.Equal(got, want[i].Data) {
			t.Errorf("%v: the blob has %v, the teacher said %v", s.ID, got, want[i].Data)
		}
	}
}

// TestScorerWithoutBlobs: what nobody could keep is refused before the run.
func TestScorerWithoutBlobs(t *testing.T) {
	w := newWorld(asyncConfig())
	opt := live.Options{Environment: w.env, Trainer: w.trainer, Weights: w.weights, Store: w.store, Clock: func() int64 { return 0 }, Scorer: &fakeTeacher{}}
	opt.Header.Loop = w.cfg
	for _, e := range w.engines {
		opt.Engines = append(opt.Engines, e)
	}
	if _, err := live.New(opt); err == nil {
		t.Error("a scorer is taken with a store that keeps no rows")
	}
}
