package remote

import (
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
)

// A rollout of an evaluation is claimed, sampled and finished as others are, and its claim says what it is.
func TestEvaluationIsClaimed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(-200, 3, 1))
		c := claim(t, e, "w")
		if c.ID != "e200-s3-a1" || !c.Evaluation || c.Group != -200 {
			t.Errorf("claimed %+v", c)
		}
		sample(t, e, "w", c.ID, 0, 20)
		go func() {
			<-p.done
			e.Logged(id(-200, 3, 1), true)
		}()
		reply, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		if err != nil || !reply.Counted || p.err != nil {
			t.Errorf("answered %+v, %v; played %v", reply, err, p.err)
		}
		empty(t, e)
	})
}

func TestClaimIDs(t *testing.T) {
	for text, want := range map[string]port.RolloutID{"g12-s3-a1": id(12, 3, 1), "e12-s3-a1": id(-12, 3, 1)} {
		if got, ok := parseClaimID(text); !ok || got != want || claimID(want) != text {
			t.Errorf("%s is parsed as %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"e-12-s3-a1", "e0-s3-a1", "g-12-s3-a1", "e12-s3-a1 ", "e12-s3", "e012-s3-a1"} {
		if got, ok := parseClaimID(text); ok {
			t.Errorf("%q is parsed as %+v", text, got)
		}
	}
}
