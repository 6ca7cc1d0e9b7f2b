package experiment

import (
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/doctor"
	"github.com/headway-rl/headway/predict/plan"
	"github.com/headway-rl/headway/predict/theory"
)

// DoctorCase is a resolved document with its inputs for closed forms and
// simulator, where it says how fast the trainer is.
func DoctorCase(document config.Config) (doctor.Case, error) {
	examined := doctor.Case{Document: document}
	if document.Modelled.Train.Utilization == 0 && document.Modelled.Train.StepS == 0 && document.Modelled.Train.ThroughputTokensPerS == 0 {
		return examined, nil
	}
	modelled, refused := document.ForSimulation()
	if refused != nil { // a filter looks at rewards that nothing models: closed forms know of neither
		modelled = document
		modelled.Filter.SolveRate.Drop, modelled.Filter.Curriculum.Levels = false, 0
	}
	setting, err := Input(modelled)
	if err != nil {
		return examined, err
	}
	why, asked, err := Covered(underDrop(modelled), setting)
	if err != nil {
		return examined, err
	}
	examined.Beside, _, _ = strings.Cut(why, ": no closed form")
	examined.Setting = &asked
	if refused != nil {
		return examined, nil
	}
	simulated, err := Devices(Case{Document: modelled, Setting: setting})
	if err != nil {
		return examined, err
	}
	examined.Simulation = &simulated
	return examined, nil
}

// underDrop is a document without the rules that doctor holds against the closed form
// of queue-drop, or examines by themselves, so that what no closed form covers is said
// in one place, [covered]. Where fewer in flight generate faster, those rules decide
// how many do, and stay.
func underDrop(d config.Config) config.Config {
	d.Rollout.Oversample, d.Rollout.Redundancy = 1, 0
	d.Rollout.Prune.Tokens, d.Rollout.Prune.Check = 0, "none"
	d.Filter.SolveRate.Drop, d.Filter.ZeroAdvantage = false, false
	d.Control = config.Control{}
	if len(d.Modelled.DecodeCurve) == 0 {
		d.Queue.Policy, d.Queue.Hold, d.Queue.PauseAt = theory.PolicyDrop, 0, 0
		d.Rollout.Partial.Interrupt = "none"
	}
	return d
}

// PlanProblem is what a plan searches in, from a document that is not resolved yet. It
// hands warnings about the document to warned.
func PlanProblem(raw config.Config, warned func(config.Warning)) (plan.Problem, error) {
	resolved, err := raw.Resolve()
	if err != nil {
		return plan.Problem{}, err
	}
	document, err := resolved.ForPlan()
	if err != nil {
		return plan.Problem{}, err
	}
	for _, w := range document.Warnings() {
		if w.Key == "modelled.prompt_tokens" || w.Key == "modelled.tools.output_tokens" {
			continue // a plan has them read by the replicas
		}
		warned(w)
	}
	lengths, err := document.LengthModel()
	if err != nil {
		return plan.Problem{}, err
	}
	raw, document, teacher, err := plan.WithTeacher(raw, document, lengths)
	if err != nil {
		return plan.Problem{}, err
	}
	environment, together, err := planOutside(document, lengths.Mean())
	if err != nil {
		return plan.Problem{}, err
	}
	machine, err := plan.NewMachine(document, lengths)
	if err != nil {
		return plan.Problem{}, err
	}
	problem := plan.Problem{Document: document, Raw: raw, Machine: machine, Teacher: teacher, Larger: plan.LargerMachines(document, lengths, machine), Lengths: lengths, Environment: environment, Simulation: DevicesOf}
	if problem.Uncovered = planUncovered(document); problem.Uncovered == "" && together {
		problem.Uncovered = "siblings' times in tools, sandbox, verifier or scorer are measured together"
	}
	return problem, nil
}

// planUncovered says what of a document's workload has no closed form, its queue's
// rules apart, which the plan chooses.
func planUncovered(document config.Config) string {
	document.Schedule, document.Queue = "asynchronous", config.Queue{Policy: theory.PolicyDrop}
	why, _, _ := strings.Cut(Uncovered(document), ": no closed form")
	return why
}

// planOutside is the distribution of a rollout's time in environment, tools, a
// sandbox's start, with a verifier and with scorers, as closed forms take it. Reading tools' outputs is
// in a machine's speeds. Where siblings' times are measured together, only the mean of
// all but the environment is known, and together says so.
func planOutside(document config.Config, meanTokens float64) (outside *workload.Times, together bool, err error) {
	document.Modelled.Tools.OutputTokens = 0
	if outside, err = document.OutsideModel(); err != nil || outside != nil {
		return outside, false, err
	}
	if outside, err = document.EnvironmentTimes(); err != nil || !outside.Zero() {
		return outside, true, err
	}
	spec := workload.TimesSpec{Kind: workload.KindFixed, MeanS: document.Modelled.Tools.Calls*document.Modelled.Tools.Time.MeanS + document.Modelled.Sandbox.Start.MeanS + document.Modelled.Verifier.Time.MeanS + document.ScoreMeanS(meanTokens)}
	outside, err = spec.Build()
	return outside, true, err
}

// DevicesOf is a document as headway simulate has it.
func DevicesOf(document config.Config) (sim.Config, error) {
	document, err := document.ForSimulation()
	if err != nil {
		return sim.Config{}, err
	}
	setting, err := Input(document)
	if err != nil {
		return sim.Config{}, err
	}
	return Devices(Case{Document: document, Setting: setting})
}
