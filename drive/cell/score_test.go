package cell

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// Scores that are not of every sampled token are refused, whoever says them.
func TestScoresThatAreRefused(t *testing.T) {
	s := &port.Sample{Tokens: make([]int32, 6), LossMask: []uint8{0, 1, 1, 0, 1, 0}, Breaks: []int32{3},
		Channels: []channel.Channel{{Header: channel.Header{Name: channel.SamplingMask, DType: channel.I32, Ragged: true, Align: channel.Sampled}}}}
	h := channel.Header{Name: channel.TeacherIDs, DType: channel.I32, Row: []int{2}, Align: channel.Sampled}
	for _, c := range []struct {
		name  string
		spoil func([]port.Scores) []port.Scores
		want  bool
	}{
		{"as they should be", func(x []port.Scores) []port.Scores { return x }, true},
		{"a row too few", func(x []port.Scores) []port.Scores { x[0].Data = x[0].Data[8:]; return x }, false},
		{"a row too many", func(x []port.Scores) []port.Scores { x[1].Data = make([]byte, 16); return x }, false},
		{"half a row", func(x []port.Scores) []port.Scores { x[1].Data = make([]byte, 4); return x }, false},
		{"no sequence's", func(x []port.Scores) []port.Scores { x[1].Sequence = 2; return x }, false},
		{"one sequence twice", func(x []port.Scores) []port.Scores { x[1].Sequence, x[1].Data = 0, make([]byte, 16); return x }, false},
		{"one sequence alone", func(x []port.Scores) []port.Scores { return x[:1] }, false},
		{"out of order", func(x []port.Scores) []port.Scores { x[0], x[1] = x[1], x[0]; return x }, false},
		{"two forms", func(x []port.Scores) []port.Scores { x[1].Row = []int{1, 2}; return x }, false},
		{"aligned to tokens", func(x []port.Scores) []port.Scores {
			x[1].Align, x[1].Data = channel.Tokens, make([]byte, 24)
			return x
		}, false},
		{"without a name", func(x []port.Scores) []port.Scores { x[1].Name = ""; return x }, false},
		{"an engine's", func(x []port.Scores) []port.Scores {
			x[0].Name, x[1].Name = channel.SamplingMask, channel.SamplingMask
			return x
		}, false},
		{"nothing", func(x []port.Scores) []port.Scores { return nil }, false},
	} {
		scores := []port.Scores{{Header: h, Data: make([]byte, 16)}, {Header: h, Sequence: 1, Data: make([]byte, 8)}}
		if err := checkScores(s, c.spoil(scores)); (err == nil) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Scores are of what is trained on: an agent that is not has none, and its tokens are not missed.
func TestScoresOfAgents(t *testing.T) {
	s := &port.Sample{Tokens: make([]int32, 6), LossMask: []uint8{0, 1, 1, 0, 1, 0}, Logprobs: make([]float32, 6), Versions: make([]loop.Version, 6),
		Breaks: []int32{3}, Agents: []port.Agent{{Name: "referee", Untrained: true}, {Name: "solver"}}}
	h := channel.Header{Name: channel.ReferenceLogprobs, DType: channel.F32, Align: channel.Sampled}
	solver := port.Scores{Header: h, Sequence: 1, Data: make([]byte, 4)}
	if err := checkScores(s, []port.Scores{solver}); err != nil {
		t.Error(err)
	}
	if err := checkScores(s, []port.Scores{{Header: h, Data: make([]byte, 8)}, solver}); err == nil {
		t.Error("scores of an agent that is not trained are taken")
	}
}

// roomOfEight is a store that keeps blobs of eight bytes in all.
type roomOfEight struct {
	port.Store
	blobs map[int32]int
	used  map[int32]bool
}

func (r *roomOfEight) put(number int32, data []byte) error {
	held := len(data)
	for _, n := range r.blobs {
		held += n
	}
	switch {
	case r.used[number]:
		return errors.New("a number is used again")
	case held > 8:
		return port.ErrNoSpace
	}
	r.blobs[number], r.used[number] = len(data), true
	return nil
}

func (r *roomOfEight) Discard(port.RolloutID) error {
	clear(r.blobs)
	return nil
}

func (r *roomOfEight) PutBlob(_ port.RolloutID, number int32, data []byte) error {
	return r.put(number, data)
}

func (r *roomOfEight) ReadBlob(port.RolloutID, int32, int64, []byte) error { return port.ErrNoBlob }

func (r *roomOfEight) PutSample(port.Sample) error { return nil }

// full is a rollout whose engines have said a row, in a store that has room for nothing of eight bytes beside it. Whoever
// waits for room more than three times is given up.
func full(t *testing.T) (*Cell, *rollout, *port.Sample, *roomOfEight, *int) {
	ctx, cancel := context.WithCancel(t.Context())
	store, waits := &roomOfEight{blobs: map[int32]int{0: 1}, used: map[int32]bool{0: true}}, 0
	c := &Cell{blobs: store, opt: Options{Payloads: store, Space: &Space{Clock: func() int64 { return 0 }, Timer: func(time.Duration) (<-chan time.Time, func() bool) {
		if waits++; waits > 3 {
			cancel()
		}
		fired := make(chan time.Time, 1)
		fired <- time.Time{}
		return fired, func() bool { return true }
	}}}}
	s := &port.Sample{Channels: []channel.Channel{{Header: channel.Header{Name: channel.RoutedExperts}}}}
	return c, &rollout{ctx: ctx, side: sideRows{put: store.put, blobs: 1}}, s, store, &waits
}

// Scores and media find the room that rows of their own rollout have taken: all that wait for some could hold it between
// them.
func TestScoresTakeTheRoomOfRows(t *testing.T) {
	c, p, s, store, waits := full(t)
	refusals := 0
	p.side.refused = func(error) { refusals++ }
	h := channel.Header{Name: channel.ReferenceLogprobs, DType: channel.F32, Align: channel.Sampled}
	scores := []port.Scores{{Header: h, Data: make([]byte, 4)}, {Header: h, Sequence: 1, Data: make([]byte, 4)}}
	err := c.opt.Space.Write(p.ctx, nil, func() error { return c.keepScores(p, s, scores) })
	if err != nil || *waits != 1 || refusals != 1 {
		t.Errorf("%d waits, %d refusals: %v", *waits, refusals, err)
	}
	if len(s.Channels) != 2 || s.Channels[0].Name != h.Name || len(store.blobs) != 2 || s.Channels[0].Parts[0].Blob != 3 {
		t.Errorf("%+v in blobs %v: want the scores alone", s.Channels, store.blobs)
	}
}

func TestMediaTakeTheRoomOfRows(t *testing.T) {
	c, p, s, store, waits := full(t)
	s.Media = []media.Item{{Modality: media.Image, Hash: media.Hash{1}, Data: make([]byte, 8)}}
	err := c.opt.Space.Write(p.ctx, nil, func() error { _, err := c.putSample(p, s); return err })
	if err != nil || *waits != 1 || s.Channels != nil || len(store.blobs) != 1 || s.Media[0].Data != nil {
		t.Errorf("%d waits, %+v in blobs %v: %v", *waits, s, store.blobs, err)
	}
}

// fullOnce is a store of a cell that fails with the first payload.
type fullOnce struct {
	port.Blobs
	by   error
	puts []port.Sample
}

func (*fullOnce) PutSample(port.Sample) error  { return nil }
func (*fullOnce) Discard(port.RolloutID) error { return nil }
func (*fullOnce) Forget(loop.GroupID) error    { return nil }
func (f *fullOnce) PutReferred(s port.Sample) (string, error) {
	if f.puts = append(f.puts, s); len(f.puts) == 1 {
		return "what was put", fmt.Errorf("a test: %w", f.by)
	}
	return "all", nil
}

// A payload for which a cell finds no room, or whose rows its disk has lost, gives up the rows of engines, and keeps scores.
func TestPayloadsTakeTheRoomOfRows(t *testing.T) {
	for by, waited := range map[error]int{port.ErrNoSpace: 1, port.ErrBlobDamaged: 0, port.ErrNoBlob: 0} {
		checkGivesUpRows(t, by, waited)
	}
}

func checkGivesUpRows(t *testing.T, by error, waited int) {
	t.Helper()
	c, p, s, _, waits := full(t)
	store := &fullOnce{by: by}
	c.referring, c.opt.Payloads = store, store
	refusals := 0
	p.side.refused = func(error) { refusals++ }
	p.scores = []string{channel.ReferenceLogprobs}
	scores := channel.Channel{Header: channel.Header{Name: channel.ReferenceLogprobs}}
	s.Channels = append(s.Channels, scores)
	reference := ""
	err := c.opt.Space.Write(p.ctx, nil, func() (err error) { reference, err = c.putSample(p, s); return err })
	if err != nil || *waits != waited || refusals != 1 || reference != "all" {
		t.Errorf("%v: %d waits, %d refusals, reference %q: %v", by, *waits, refusals, reference, err)
	}
	if len(store.puts) != 2 || len(store.puts[0].Channels) != 2 || !reflect.DeepEqual(store.puts[1].Channels, []channel.Channel{scores}) {
		t.Errorf("it puts %+v", store.puts)
	}
}
