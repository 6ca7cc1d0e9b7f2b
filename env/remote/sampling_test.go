package remote

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/protocol"
)

// TestClientSampling: what an agent asks for and what the run says, each way.
func TestClientSampling(t *testing.T) {
	number := func(x float64) *float64 { return &x }
	ten, all := 10, -1
	run := &live.Sampling{Temperature: 0.7, TopK: 10}
	for _, c := range []struct {
		name       string
		run        *live.Sampling
		how        string
		client     protocol.Sampling
		want       *live.Sampling
		overridden []string
	}{
		{name: "nothing is asked for"},
		{name: "the policy as it is", client: protocol.Sampling{Temperature: number(1), TopP: number(1), TopK: &all, MinP: number(0)}},
		{name: "override", client: protocol.Sampling{Temperature: number(0), MinP: number(0.1)}, overridden: []string{"temperature", "min_p"}},
		{name: "the run's", run: run, client: protocol.Sampling{TopK: &ten, Temperature: number(1)}, want: &live.Sampling{Temperature: 0.7, TopP: 1, TopK: 10}, overridden: []string{"temperature"}},
		{name: "stops are the client's", client: protocol.Sampling{Stop: []string{"\n"}, StopTokens: []int32{3}},
			want: &live.Sampling{Temperature: 1, TopP: 1, Stop: []string{"\n"}, StopTokens: []int32{3}}},
		{name: "allow", how: SamplingAllow, run: run, client: protocol.Sampling{TopP: number(0.9), TopK: &all}, want: &live.Sampling{Temperature: 0.7, TopP: 0.9}},
		{name: "allow the policy", how: SamplingAllow, run: run, client: protocol.Sampling{Temperature: number(1), TopK: &all}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				e := open(t, func(o *Options) { o.Sampling, o.ClientSampling = c.run, c.how })
				p := play(t, e, id(1, 0, 1))
				reply, err := e.Turn(t.Context(), claim(t, e, "w").ID, protocol.TurnRequest{Prompt: []int32{20}, Sampling: c.client}, nil)
				if err != nil || !slices.Equal(reply.Overridden, c.overridden) {
					t.Errorf("overridden %v, %v: want %v", reply.Overridden, err, c.overridden)
				}
				got := p.slot.asked[0].Sampling
				if (got == nil) != (c.want == nil) || got != nil && !equalSampling(*got, *c.want) {
					t.Errorf("sampled with %+v, want %+v", got, c.want)
				}
			})
		})
	}
}

func equalSampling(a, b live.Sampling) bool {
	return a.Temperature == b.Temperature && a.TopP == b.TopP && a.TopK == b.TopK && a.MinP == b.MinP &&
		slices.Equal(a.Stop, b.Stop) && slices.Equal(a.StopTokens, b.StopTokens)
}
