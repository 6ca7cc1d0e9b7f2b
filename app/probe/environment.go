package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/taskset/columns"
	"github.com/headway-rl/headway/env/verifier"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/doctor"
)

// trialLimit is how long doctor tries a sandbox, a verdict or an OpenEnv server.
const trialLimit = 2 * time.Minute

// ExamineEnvironment adds to a case what is found of what rollouts are played with. Without probing
// nothing is started or asked, and files alone are read.
func ExamineEnvironment(ctx context.Context, application *app.Process, document config.Config, probe bool, examined *doctor.Case) {
	e := document.Environment
	if !e.Played() && !document.UsesSandbox() {
		return
	}
	found := &doctor.EnvironmentFound{}
	examined.Environment = found
	var set *taskset.Set
	if e.Played() && e.Tasks.File != "" {
		set, document, found.Tasks = examineTasks(document)
		e = document.Environment
	}
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	if e.Kind == "openenv" {
		found.OpenEnv = examineOpenEnv(ctx, e.OpenEnv, probe)
	}
	var driver sandbox.Driver
	if document.UsesSandbox() {
		driver, found.Sandbox = trySandbox(ctx, application.Now, document, probe)
	}
	if e.Played() && e.Verifier.Kind != "none" {
		found.Verifier = tryVerifier(ctx, document, verdictTrial{now: application.Now, set: set, driver: driver, asks: probe})
	}
}

// examineTasks reads the task file. The document comes back with what follows from the tasks.
func examineTasks(document config.Config) (*taskset.Set, config.Config, *doctor.TasksFound) {
	set, err := parts.LoadTasks(document, columns.Read)
	if err != nil {
		t := &doctor.TasksFound{}
		var mistakes *taskset.Mistakes
		if !errors.As(err, &mistakes) {
			t.Mistakes = []string{err.Error()}
			return nil, document, t
		}
		for _, m := range mistakes.List {
			t.Mistakes = append(t.Mistakes, m.String())
		}
		t.More = mistakes.More
		return nil, document, t
	}
	document, err = parts.WithVerifier(document, set)
	if err != nil {
		return nil, document, &doctor.TasksFound{Mistakes: []string{err.Error()}}
	}
	return set, document, &doctor.TasksFound{Trained: set.Len(), HeldOut: set.HeldOutLen(), Odd: set.Warnings(), Unmet: parts.UnmetWants(set, document)}
}

// examineOpenEnv asks an OpenEnv server for its health and schema.
func examineOpenEnv(ctx context.Context, o config.OpenEnv, probe bool) *doctor.Answer {
	server, err := parts.OpenenvOf(o)
	if err == nil && probe {
		err = server.Check(ctx)
	}
	if err != nil {
		return &doctor.Answer{Err: err.Error()}
	}
	return &doctor.Answer{}
}

// trySandbox makes one sandbox as a run would, and runs a program in it. The driver is nil where that
// did not work, or was not tried.
func trySandbox(ctx context.Context, now func() time.Time, document config.Config, probe bool) (sandbox.Driver, *doctor.SandboxFound) {
	s := &doctor.SandboxFound{Driver: document.Sandbox.Driver, Do: "get what is missing, or choose another sandbox.driver"}
	if !probe {
		if _, err := parts.DriverOf(document); err != nil {
			s.Err = err.Error()
		}
		return nil, s
	}
	driver, boundary, err := parts.UsableDriver(ctx, document)
	if err != nil {
		var refused *failure.Error
		if s.Err = err.Error(); errors.As(err, &refused) && refused.Code == failure.ExitUsage {
			s.Do = refused.Hint
		}
		return nil, s
	}
	s.Secure, s.Lacks = boundary.Secure(), boundary.Why
	began := now()
	box, err := trialBox(ctx, document, driver, now().UnixNano())
	if err != nil {
		s.Err = err.Error()
		return nil, s
	}
	defer closeTrial(ctx, box)
	s.StartS = now().Sub(began).Seconds()
	began = now()
	if err := runTrue(ctx, box); err != nil {
		s.Err, s.Do = err.Error(), "give sandboxes a root with ordinary programs, and limits with which they run"
		return nil, s
	}
	s.RunS, s.Started = now().Sub(began).Seconds(), true
	if err := runLanguage(ctx, document.Environment, box); err != nil {
		s.Err, s.Do = err.Error(), "give sandboxes a root that has it"
		return nil, s
	}
	return driver, s
}

// trialBox makes a box of the document that no run knows of, and that the next trial of the same
// document removes where this one is killed.
func trialBox(ctx context.Context, document config.Config, driver sandbox.Driver, number int64) (sandbox.Box, error) {
	owner := parts.SandboxOwner(document, "doctor")
	left, err := driver.List(ctx, owner)
	if err != nil {
		return nil, err
	}
	for _, id := range left {
		if err := driver.Destroy(ctx, id); err != nil {
			return nil, err
		}
	}
	starting, cancel := context.WithTimeout(ctx, config.Seconds(document.Sandbox.StartTimeoutS))
	defer cancel()
	id := sandbox.ID(owner + ".trial-" + strconv.FormatInt(number, 36))
	box, err := driver.Create(starting, id, parts.SpecOf(document.Sandbox))
	if err != nil && starting.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("it was not there after %g s (sandbox.start_timeout_s): %w", document.Sandbox.StartTimeoutS, err)
	}
	return box, err
}

func closeTrial(ctx context.Context, box sandbox.Box) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), parts.PoolCloseLimit)
	defer cancel()
	_ = box.Close(closing) // the next trial removes it
}

func runTrue(ctx context.Context, box sandbox.Box) error {
	return runOne(ctx, box, "true")
}

// runLanguage runs what the programs of the task code are written in. What Go needs is put beside the
// box by a run itself.
func runLanguage(ctx context.Context, e config.Environment, box sandbox.Box) error {
	if e.Kind != "embedded" || e.Task != "code" || e.Language != "python" {
		return nil
	}
	return runOne(ctx, box, "python3", "-c", "pass")
}

func runOne(ctx context.Context, box sandbox.Box, argv ...string) error {
	result, err := box.Run(ctx, sandbox.Command{Argv: argv})
	switch {
	case err != nil:
		return err
	case result.Exit != 0 || result.Limit != "":
		return fmt.Errorf("%s in it ended with exit code %d (limit %q): %.300s", argv[0], result.Exit, cmp.Or(result.Limit, "none"), result.Stderr)
	}
	return nil
}

// verdictTrial is what a verifier can be tried with.
type verdictTrial struct {
	now    func() time.Time
	set    *taskset.Set   // nil where there are no tasks
	driver sandbox.Driver // nil where there are no sandboxes
	asks   bool
}

// tryVerifier makes the verifier, and has it judge an episode in which the policy says the answer of the first task.
func tryVerifier(ctx context.Context, document config.Config, trial verdictTrial) *doctor.VerifierFound {
	kind := document.Environment.Verifier.Kind
	found := &doctor.VerifierFound{Kind: kind}
	judge, err := parts.VerifierOf(document)
	if err != nil {
		found.Err = err.Error()
		return found
	}
	defer judge.Close()
	if !trial.asks || trial.set == nil || kind == verifier.Tests && trial.driver == nil {
		return found
	}
	task := trial.set.At(1, 0)
	var world episode.World
	if trial.driver != nil {
		box, err := trialBox(ctx, document, trial.driver, trial.now().UnixNano())
		if err != nil {
			found.Err = err.Error()
			return found
		}
		defer closeTrial(ctx, box)
		if world, err = episode.NewSandboxed(box, episode.SandboxedOptions{Tools: []string{}}); err != nil {
			found.Err = err.Error()
			return found
		}
	}
	said := &answering{task: task, now: trial.now}
	outcome, err := episode.Play(ctx, task, said, world, judge, episode.Options{Rollout: "doctor", TurnsMax: 1, Timeout: trialLimit})
	if err != nil {
		found.Err = fmt.Sprintf("on task %s: %v", task.ID, err)
		return found
	}
	found.Judged, found.Reward, found.Seconds = true, outcome.Verdict.Reward, trial.now().Sub(said.when).Seconds()
	return found
}

// answering is a policy that says a task's answer, and notes when it did.
type answering struct {
	task *taskset.Task
	now  func() time.Time
	when time.Time
}

// Say implements [episode.Policy].
func (a *answering) Say(context.Context, []json.RawMessage, json.RawMessage) (episode.Message, error) {
	text := string(a.task.Answer)
	var said string
	if json.Unmarshal(a.task.Answer, &said) == nil {
		text = said
	}
	raw, err := json.Marshal(struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{"assistant", text})
	a.when = a.now()
	return episode.Message{Raw: raw, Text: text, Finish: "stop"}, err
}
