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
		p := problemOf(t, small, "modelled.tools={calls: 10, output_tokens: "+output+"}")
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
		p := problemOf(t, small, "modelled.prompt_tokens=2000", "modelled.prefill="+prefill)
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

// A curve of one engine for all replicas, as a plan writes it, is planned with at its
// own slots; its speeds have the reading of prompts in them.
func TestCurveOfTheWholeFleet(t *testing.T) {
	p := problemOf(t, small, "hardware.rollout_gpus=8", "hardware.gpus_per_replica=1", "search.slots_per_gpu=null", "rollout.concurrency=128", "engines=[{kind: embedded, name: all, slots: 128}]",
		"modelled.decode_curve=[{active: 16, tokens_per_s: 120}, {active: 128, tokens_per_s: 60}]")
	if m := p.Machine; m.SlotsFixed != 16 || m.PrefillS != 0 || m.StepS(16) != 1.0/60 || m.StepS(2) != 1.0/120 {
		t.Errorf("%d slots, prefill %g s, steps of %g and %g s", m.SlotsFixed, m.PrefillS, m.StepS(16), m.StepS(2))
	}
}
