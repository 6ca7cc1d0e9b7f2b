package remote

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
)

// TestClientSampling: what an agent asks for and what the run says, each way.
func TestClientSampling(t *testing.T) {
	number := func(x float64) *float64 { return &x }
	ten, all := 10, -1
	run := &port.Sampling{Temperature: 0.7, TopK: 10}
	for _, c := range []struct {
		name       string
		run        *port.Sampling
		how        string
		client     protocol.Sampling
		want       *port.Sampling
		overridden []string
	}{
		{name: "nothing is asked for"},
		{name: "the policy as it is", client: protocol.Sampling{Temperature: number(1), TopP: number(1), TopK: &all, MinP: number(0)}},
		{name: "override", client: protocol.Sampling{Temperature: number(0), MinP: number(0.1)}, overridden: []string{"temperature", "min_p"}},
		{name: "the run's", run: run, client: protocol.Sampling{TopK: &ten, Temperature: number(1)}, want: &port.Sampling{Temperature: 0.7, TopP: 1, TopK: 10}, overridden: []string{"temperature"}},
		{name: "stops are the client's", client: protocol.Sampling{Stop: []string{"\n"}, StopTokens: []int32{3}},
			want: &port.Sampling{Temperature: 1, TopP: 1, Stop: []string{"\n"}, StopTokens: []int32{3}}},
		{name: "allow", how: SamplingAllow, run: run, client: protocol.Sampling{TopP: number(0.9), TopK: &all}, want: &port.Sampling{Temperature: 0.7, TopP: 0.9}},
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

// TestPolicyOnly: what engines cannot do that only draw by the policy is refused by the name of its
// field, and what they can is left as it is.
func TestPolicyOnly(t *testing.T) {
	half, one := 0.5, 1.0
	for _, how := range []string{SamplingOverride, SamplingAllow} {
		inBubble(t, func(t *testing.T) {
			e := open(t, func(o *Options) { o.PolicyOnly, o.ClientSampling = true, how })
			p := play(t, e, id(1, 0, 1))
			rollout := claim(t, e, "w").ID
			turn := func(s protocol.Sampling) (protocol.TurnReply, error) {
				return e.Turn(t.Context(), rollout, protocol.TurnRequest{Prompt: []int32{20}, Sampling: s}, nil)
			}
			_, err := turn(protocol.Sampling{Stop: []string{"a"}})
			refused(t, err, protocol.CodeInvalid, "stop_token_ids")
			if refusal := protocol.RefusalOf(err); refusal.Detail["field"] != "stop" {
				t.Errorf("the refusal names %v", refusal.Detail)
			}
			reply, err := turn(protocol.Sampling{Temperature: &half, TopP: &one})
			if how == SamplingAllow {
				refused(t, err, protocol.CodeInvalid, "temperature")
			} else if err != nil || !slices.Equal(reply.Overridden, []string{"temperature"}) {
				t.Errorf("overridden %v, %v", reply.Overridden, err)
			}
			if _, err := turn(protocol.Sampling{Temperature: &one, StopTokens: []int32{3}}); err != nil {
				t.Fatal(err)
			}
			if got := p.slot.asked[len(p.slot.asked)-1].Sampling; got == nil || !got.Policy() || !slices.Equal(got.StopTokens, []int32{3}) {
				t.Errorf("sampled with %+v", got)
			}
		})
	}
}

func equalSampling(a, b port.Sampling) bool {
	return a.Temperature == b.Temperature && a.TopP == b.TopP && a.TopK == b.TopK && a.MinP == b.MinP &&
		slices.Equal(a.Stop, b.Stop) && slices.Equal(a.StopTokens, b.StopTokens)
}
