package diagnosis_test

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/explain/foreign"
)

// turnsLog is a log of a synchronous trainer: 178 s of generation, 114 of training, 54 of old log-probs, 2 of syncs in 356.
func turnsLog(change func(s *foreign.Step)) *foreign.Log {
	return &foreign.Log{Framework: "verl-sync", Definition: "made",
		Settings: foreign.Settings{BatchRollouts: logged(8192), GroupSize: logged(16), Policy: "synchronous", TrainGPUs: logged(128), SharedGPUs: true},
		Series: madeLog(60, func(_ int, s *foreign.Step) {
			wobble := s.PeriodS.Value / 30
			*s = foreign.Step{Step: s.Step, Steps: 1, PeriodS: logged(356 * wobble), GenerateS: logged(178 * wobble), WaitS: logged(178 * wobble), TrainS: logged(114 * wobble),
				LogProbsS: logged(54 * wobble), SyncS: logged(2 * wobble), SlotsBusy: logged(0.1), StalenessMean: logged(0), TrainerIdle: logged(0.5)}
			if change != nil {
				change(s)
			}
		}).Series}
}

// A synchronous run is told what asynchrony would buy, in one screen, and never to move GPUs that both sides use.
func TestTurnsAreToldWhatAsynchronyBuys(t *testing.T) {
	r := ofLog(t, turnsLog(nil), diagnosis.Options{Run: "theirs"})
	a := r.Asynchrony
	if a == nil {
		t.Fatal("nothing is said of asynchrony")
	}
	for _, f := range []struct {
		name           string
		got, low, high float64
	}{{"step", a.StepS, 353, 359}, {"at best", a.StepLowS, 113, 115}, {"at worst", a.StepHighS, 351, 357}, {"rest", a.RestS, 7.5, 8.5}, {"staleness", a.StalenessMean, 1, 5},
		{"least share", a.RolloutShareLow, 0.12, 0.14}, {"largest share", a.RolloutShareHigh, 0.49, 0.52}} {
		if f.got < f.low || f.got > f.high {
			t.Errorf("%s: %g, want %g to %g", f.name, f.got, f.low, f.high)
		}
	}
	text := diagnosis.First(r).Text(80)
	for _, want := range []string{"Synchronous", "Train asynchronously", "1.0 to 3.1 times", "versions", "no forecast"} {
		if !strings.Contains(text, want) {
			t.Errorf("the answer lacks %q:\n%s", want, text)
		}
	}
	if lines := strings.Count(text, "\n"); lines > 10 {
		t.Errorf("the answer has %d lines:\n%s", lines, text)
	}
	if full := diagnosis.Text(r, 80); !strings.Contains(full, "a step in turns") || !strings.Contains(full, "the trainer is as fast on its share") {
		t.Errorf("the figures lack the parts, or the conditions:\n%s", full)
	}
	if move := moving(r); move != "" {
		t.Errorf("shared GPUs are to be moved: %s", move)
	}
}

// Where the log does not say how much of the generation is tail, none is counted, and what is missing is named.
func TestTurnsWithoutTheirTail(t *testing.T) {
	r := ofLog(t, turnsLog(func(s *foreign.Step) { s.SlotsBusy = foreign.Figure{} }), diagnosis.Options{})
	if a := r.Asynchrony; a == nil || a.StepLowS < 176 || a.StepLowS > 180 || a.RolloutShareLow < 0.49 || a.RolloutShareLow > a.RolloutShareHigh {
		t.Fatalf("%+v", a)
	}
	for _, text := range []string{diagnosis.First(r).Text(80), diagnosis.Text(r, 80)} {
		if !strings.Contains(text, "response_length/mean") {
			t.Errorf("what is missing is not named:\n%s", text)
		}
	}
}

// moving is the code of a finding that would move GPUs.
func moving(r diagnosis.Report) string {
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Code, "move_to_") {
			return f.Code
		}
	}
	return ""
}

// A log without the parts of a step buys nothing that could be said, and an asynchronous one on shared GPUs moves none.
func TestTurnsNeedTheirParts(t *testing.T) {
	if r := ofLog(t, turnsLog(func(s *foreign.Step) { s.TrainS = foreign.Figure{} }), diagnosis.Options{}); r.Asynchrony != nil {
		t.Errorf("training is not known, and yet %+v", r.Asynchrony)
	}
	log := madeLog(200, nil)
	if move := moving(ofLog(t, log, diagnosis.Options{})); move == "" {
		t.Error("GPUs that are apart are not moved: the next check shows nothing")
	}
	log.Settings.SharedGPUs = true
	r := ofLog(t, log, diagnosis.Options{})
	if move := moving(r); move != "" || r.Asynchrony != nil {
		t.Errorf("shared GPUs: %s, %+v", move, r.Asynchrony)
	}
}
