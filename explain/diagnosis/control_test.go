package diagnosis_test

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/loop"
)

// halting is a workload in which one train step takes so many times as long as the others.
type halting struct {
	*sim.Modelled
	at    loop.LeaseID
	times int64
}

func (h halting) StepNS(lease loop.LeaseID, rollouts, tokens int64) int64 {
	ns := h.Modelled.StepNS(lease, rollouts, tokens)
	if lease == h.at {
		ns *= h.times
	}
	return ns
}

// steered is the trace of a simulation of a document with a target: 64 slots, groups of 4, train steps of 2 s.
// The train step at halts, if it is not 0.
func steered(t *testing.T, steps int, acceptance float64, halts loop.LeaseID, keys ...string) []byte {
	t.Helper()
	return recording{steps: steps, warmup: 60, acceptance: acceptance, stepS: 2, halts: halts}.trace(t, append([]string{"queue.factor=2"}, keys...)...)
}

// said is the evidence of a finding in one line.
func said(f *diagnosis.Finding) string { return strings.Join(f.Evidence, "\n") }

// targetFindings are the codes of what is found about a target.
func targetFindings(r diagnosis.Report) (codes []string) {
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Code, "target_") {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// A target out of reach names what binds and the range to widen, and prices that by a resimulation.
func TestTargetOutOfReach(t *testing.T) {
	text := steered(t, 400, 1, 0, "control.target=0.5", "control.limits.live_groups.least=12")
	r, err := judged(t, text, diagnosis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := found(r, "target_unreachable")
	if f == nil || f.Change == nil {
		t.Fatalf("%v: %+v", targetFindings(r), f)
	}
	if f.Change.Set != "control.limits.live_groups.least=0" || f.Change.Method != "resimulation" || f.Change.Gain < 0.2 || f.Change.PeriodRatio < 1 || f.CostVersions <= 0 || f.Fails == "" ||
		!strings.Contains(f.Change.Price, "held in") || !strings.Contains(said(f), "live_groups stands at 12 of 12") || !strings.Contains(said(f), "control.limits.live_groups narrows it") {
		t.Errorf("%+v, %+v", f, f.Change)
	}
	if r, err = judged(t, text, diagnosis.Options{ClosedForms: true}); err != nil {
		t.Fatal(err)
	}
	if f = found(r, "target_unreachable"); f == nil || f.Change != nil || !strings.Contains(said(f), "try --set control.limits.live_groups.least=0") {
		t.Errorf("without a resimulation: %+v", f)
	}
}

// What binds may be no range of its own: more train steps a sync than the target permits, or a setting that was
// left out.
func TestTargetOutOfReachOfItsRanges(t *testing.T) {
	for want, keys := range map[string][]string{
		"sync.every=1":                       {"control.target=0.9", "sync.every=4"},
		"control.limits.live_groups.least=0": {"control.target=0.5", "control.limits.live_groups.least=12", "control.limits.live_groups.most=12", "control.limits.concurrency.least=64", "control.limits.hold.most=0"},
	} {
		r, err := judged(t, steered(t, 400, 1, 0, keys...), diagnosis.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if f := found(r, "target_unreachable"); f == nil || f.Change == nil || !strings.HasPrefix(f.Change.Set, want) {
			t.Errorf("%s: %+v, %v", want, f, targetFindings(r))
		}
	}
}

// A target that is kept is no finding but for its price: what a laxer one and a larger batch would buy, or, where
// nothing is resimulated, what is seen of it.
func TestTargetKept(t *testing.T) {
	text := steered(t, 500, 1, 0, "control.target=1.5")
	r, err := judged(t, text, diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	f := found(r, "target_binds")
	if f == nil || len(targetFindings(r)) != 1 || f.Change != nil || !strings.Contains(said(f), "not resimulated") {
		t.Fatalf("by closed forms: %v: %+v", targetFindings(r), f)
	}
	if r, err = judged(t, text, diagnosis.Options{}); err != nil {
		t.Fatal(err)
	}
	f = found(r, "target_binds")
	if f == nil || len(targetFindings(r)) != 1 || f.Change == nil {
		t.Fatalf("%v: %+v", targetFindings(r), f)
	}
	if f.Change.Set != "control.target.staleness_mean=3" || f.Change.PeriodRatio > 0.9 || f.Change.Gain > -0.5 || !strings.Contains(said(f), "or --set train.batch=64") {
		t.Errorf("%+v, %+v", f, f.Change)
	}
	r, err = judged(t, simulated(t, 300, 12, true), diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	if codes := targetFindings(r); len(codes) > 0 {
		t.Errorf("without a target: %v", codes)
	}
}

// Where a run is too short to be sure of what a laxer target buys, the finding is there without a change, and says
// whose doing the pauses of the engines are.
func TestTargetBindsUnsurely(t *testing.T) {
	r, err := judged(t, steered(t, 150, 1, 0, "control.target=1.5"), diagnosis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := found(r, "target_binds")
	if f == nil || f.Change != nil || f.CostRatio != 0 || f.Severity != "warning" {
		t.Fatalf("%v: %+v", targetFindings(r), f)
	}
	for _, want := range []string{"engines pause is the controller's doing: live_groups stands at", "control.target.staleness_mean=3 might shorten the period by ", "a longer run would tell", "or --set train.batch=64"} {
		if !strings.Contains(said(f), want) {
			t.Errorf("lacks %q:\n%s", want, said(f))
		}
	}
}

// A setting that goes back and forth at rest is found, with what was tried against it.
func TestTargetSwings(t *testing.T) {
	text := steered(t, 700, 0.4, 0, "control.target.share=0.999", "control.target.within=2", "control.window=8", "train.batch=8",
		"control.limits.live_groups.least=999", "control.limits.live_groups.most=999")
	r, err := judged(t, text, diagnosis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := found(r, "target_oscillating")
	if f == nil {
		t.Fatalf("%v", targetFindings(r))
	}
	if !strings.Contains(f.Title, "concurrency") || !strings.Contains(said(f), "control.window=16") || !strings.Contains(said(f), "turns of more than") {
		t.Errorf("%+v", f)
	}
	if f.Change != nil && (f.Change.Method != "resimulation" || !strings.HasPrefix(f.Change.Set, "control.")) {
		t.Errorf("%+v", f.Change)
	}
}

// A train step that takes very long leaves the controller without a measurement.
func TestTargetSilent(t *testing.T) {
	r, err := judged(t, steered(t, 300, 1, 200, "control.target=1.5"), diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	f := found(r, "target_silent")
	if f == nil || !strings.Contains(said(f), "the longest wait was before step 2") {
		t.Errorf("%v: %+v", targetFindings(r), f)
	}
}
