package port

import (
	"reflect"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
)

// spoken is a rollout of three sequences of two tokens, the middle one of an agent that is not trained.
func spoken() Sample {
	return Sample{
		Tokens: []int32{1, 2, 3, 4, 5, 6}, LossMask: []uint8{0, 1, 0, 1, 0, 1}, Logprobs: []float32{0, -1, 0, -2, 0, -3},
		Versions: []loop.Version{-1, 1, -1, 2, -1, 3}, Breaks: []int32{2, 4},
		Agents:   []Agent{{Name: "a"}, {Name: "b", Untrained: true}, {Name: "a"}},
		Channels: []channel.Channel{{Sequence: 0}, {Sequence: 1}, {Sequence: 2}},
		Media:    []media.Item{{Offset: 0, Length: 1}, {Offset: 2, Length: 1}, {Offset: 4, Length: 1, Blob: 7}},
		Resumes:  []ResumePoint{{At: 1, Version: 1}, {At: 3, Version: 2}, {At: 5, Version: 3}},
	}
}

// TestTrained: sequences of agents that are not trained are gone with all that is said of them, and values of the
// rest find their places again.
func TestTrained(t *testing.T) {
	s := spoken()
	before := spoken()
	want := Sample{
		Tokens: []int32{1, 2, 5, 6}, LossMask: []uint8{0, 1, 0, 1}, Logprobs: []float32{0, -1, 0, -3}, Versions: []loop.Version{-1, 1, -1, 3},
		Breaks: []int32{2}, Agents: []Agent{{Name: "a"}, {Name: "a"}}, Channels: []channel.Channel{{Sequence: 0}, {Sequence: 1}},
		Media:   []media.Item{{Offset: 0, Length: 1}, {Offset: 2, Length: 1, Blob: 7}},
		Resumes: []ResumePoint{{At: 1, Version: 1}, {At: 3, Version: 3}},
	}
	if got := s.Trained(); !reflect.DeepEqual(*got, want) {
		t.Errorf("trained on %+v\nwant      %+v", *got, want)
	}
	if !reflect.DeepEqual(s, before) {
		t.Errorf("the rollout has become %+v", s)
	}
	if got := s.Spread([]float32{1, 2, 3, 4}); !slices.Equal(got, []float32{1, 2, 0, 0, 3, 4}) {
		t.Errorf("spread as %v", got)
	}
	groups := []Group{{Samples: []Sample{{ID: RolloutID{Group: 1}}}}, {Samples: []Sample{spoken(), {ID: RolloutID{Group: 2}}}}}
	trained := TrainedGroups(groups)
	if len(trained[1].Samples[0].Tokens) != 4 || len(groups[1].Samples[0].Tokens) != 6 || trained[1].Samples[1].ID.Group != 2 {
		t.Errorf("groups %+v", trained)
	}
	for _, spoil := range []func(*Sample){
		func(s *Sample) { s.Agents = append(s.Agents, Agent{Name: "c"}) },
		func(s *Sample) { s.Breaks = []int32{4, 2} },
		func(s *Sample) { s.Agents[0].Untrained, s.Agents[2].Untrained = true, true },
	} {
		s := spoken()
		if spoil(&s); s.Trained() != &s {
			t.Errorf("of %+v a part is trained on", s)
		}
	}
}
