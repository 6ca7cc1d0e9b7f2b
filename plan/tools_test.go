package plan

import (
	"strings"
	"testing"
)

// What tools return takes room in the cache, time to read and part of a train step.
func TestToolTokensTakeRoomAndTime(t *testing.T) {
	type rate struct {
		slots        int
		step, decode float64
	}
	var last rate
	for i, output := range []string{"0", "500", "5000"} {
		p := problemOf(t, small, "rollout.tools={calls: 10, output_tokens: "+output+"}")
		eval, err := newEvaluator(&p)
		if err != nil {
			t.Fatal(err)
		}
		c := Candidate{Setting: Setting{RolloutGPUs: 8, TrainGPUs: 8, Replicas: 8, SlotsPerReplica: 16, BatchRollouts: 256}}
		eval.rates(&c)
		now := rate{p.Machine.SlotsMax, c.StepS, c.DecodeTokensPerS}
		if i > 0 && (now.slots >= last.slots || now.step < last.step*1.5 || now.decode >= last.decode) {
			t.Errorf("%s tokens a call: %+v after %+v", output, now, last)
		}
		last = now
		if noted := strings.Contains(strings.Join(p.Machine.Notes, "\n"), "tools return"); noted != (i > 0) {
			t.Errorf("%s tokens a call: notes %v", output, p.Machine.Notes)
		}
	}
}

// A document's own prefill speed is used instead of the roofline's.
func TestPrefillAsGiven(t *testing.T) {
	speed := func(prefill string) float64 {
		p := problemOf(t, small, "rollout.prompt_tokens=2000", "rollout.prefill="+prefill)
		eval, err := newEvaluator(&p)
		if err != nil {
			t.Fatal(err)
		}
		return eval.slotSpeed(16)
	}
	slow, fast, slot := speed("{tokens_per_s: 2000, mode: engine}"), speed("{tokens_per_s: 200000, mode: engine}"), speed("{tokens_per_s: 2000}")
	if slow > fast/1.2 || slot <= slow || slot >= fast {
		t.Errorf("a slot decodes at %g with engines that read slowly, %g with fast ones, %g with slots that read slowly", slow, fast, slot)
	}
}
