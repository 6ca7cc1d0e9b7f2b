package doctor

import (
	"fmt"
	"strings"
)

// EnvironmentFound is what was found of what rollouts are played with. Parts that the run lacks, or that were not looked at,
// are nil.
type EnvironmentFound struct {
	Tasks    *TasksFound
	Verifier *VerifierFound
	Sandbox  *SandboxFound
	// OpenEnv is what asking the server came to.
	OpenEnv *Answer
	// Fleet is who starts and stops engines.
	Fleet *Fleet
}

// TasksFound is what reading the task file came to.
type TasksFound struct {
	// Mistakes keep it from being played, each with its file and line; More were found beside.
	Mistakes []string
	More     int
	// Trained and HeldOut are the numbers of its tasks.
	Trained, HeldOut int
	// Odd is what of it is probably not meant, Unmet what its tasks ask for and this run does not give them.
	Odd, Unmet []string
}

// VerifierFound is what making the verifier came to, and judging one case.
type VerifierFound struct {
	// Err says why there is none, or why it gave no verdict; empty where it did, or was not asked.
	Err string
	// Kind of it. Judged: it gave a verdict, a reward of Reward after Seconds.
	Kind            string
	Judged          bool
	Reward, Seconds float64
}

// SandboxFound is what making one sandbox came to.
type SandboxFound struct {
	// Err says why there is none, or what went wrong in it, and Do what to do; empty where it worked.
	Err, Do string
	// Driver is who made it. Secure: untrusted code may run in it. Lacks says in words what its boundary lacks.
	Driver string
	Secure bool
	Lacks  string
	// Started: one was made, in StartS seconds, and a program ended in it after RunS.
	Started      bool
	StartS, RunS float64
}

// Answer is what asking a server came to.
type Answer struct {
	// Err says why it is of no use, empty where it is.
	Err string
}

const (
	keyTasks    = "environment.tasks.file"
	keyVerifier = "environment.verifier.kind"
	keyDriver   = "sandbox.driver"
	keyOpenEnv  = "environment.openenv.url"
)

// shownMistakes is how many mistakes or oddities of a task file are in one finding.
const shownMistakes = 8

var environmentChecks = []check{
	{fleetKind, (*examination).fleetStarts},
	{Kind{
		Code: "tasks", Severities: []Severity{Error, Warning, Info}, Keys: []string{keyTasks},
		When:  "`environment.tasks.file` cannot be played: all mistakes, with their lines. A warning is what of it is odd, an info how many tasks there are",
		Known: "reading the file, or the folder",
	}, (*examination).taskFile},
	{Kind{
		Code: "tasks-unmet", Severities: []Severity{Warning}, Keys: []string{keyTasks},
		When:  "tasks ask for an image, processors, memory, disk or a network that the sandboxes of this run do not have: they are played without",
		Known: "reading the tasks, against the section `sandbox`",
	}, (*examination).tasksUnmet},
	{Kind{
		Code: "verifier", Severities: []Severity{Error, Info}, Keys: []string{keyVerifier},
		When:  "the verifier cannot be made, or gives no verdict on the first task; else how long that took",
		Known: "making it, and judging one episode in which the policy says the answer; `--no-probe` judges none",
	}, (*examination).verifierJudges},
	{Kind{
		Code: "sandbox", Severities: []Severity{Error, Warning, Info}, Keys: []string{keyDriver},
		When:  "no sandbox can be made here, with what is missing and how to get it. A warning where it is no boundary, or enforces not all limits; an info says how long a start took",
		Known: "making one with the document's limits, and running `true` in it; `--no-probe` makes none",
	}, (*examination).sandboxStarts},
	{Kind{
		Code: "openenv-unreachable", Severities: []Severity{Error}, Keys: []string{keyOpenEnv},
		When:  "the server of `environment.openenv` does not answer, is not healthy, or takes no actions that can be made of messages",
		Known: "asking for its health and its schema; `--no-probe` asks for neither",
	}, (*examination).openEnvAnswers},
}

// some shows the first of a list and counts the others.
func some(list []string, more int) string {
	shown := list[:min(len(list), shownMistakes)]
	text := strings.Join(shown, "; ")
	if more += len(list) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func (e *examination) taskFile() {
	if e.environment == nil || e.environment.Tasks == nil {
		return
	}
	t := e.environment.Tasks
	if count := len(t.Mistakes) + t.More; count > 0 {
		f := e.add(Error, keyTasks, Asked)
		f.What = fmt.Sprintf("%s has %s: %s", e.document.Environment.Tasks.File, plural(float64(count), "mistake"), some(t.Mistakes, t.More))
		f.Why = "a run does not begin on a part of its tasks"
		f.Do = "correct the file, or say in environment.tasks which of its fields are what"
		f.Figures = Figures{{"mistakes", float64(count)}}
		return
	}
	if len(t.Odd) > 0 {
		f := e.add(Warning, keyTasks, Asked)
		f.What = "some of the tasks are odd: " + some(t.Odd, 0)
		f.Why = "they are played as they are"
		f.Do = "look at them, and correct what is not meant"
		f.Figures = Figures{{"oddities", float64(len(t.Odd))}}
	}
	f := e.add(Info, keyTasks, Asked)
	f.What = fmt.Sprintf("there are %d tasks to train on, and %d held out", t.Trained, t.HeldOut)
	f.Figures = Figures{{"tasks", float64(t.Trained)}, {"held_out", float64(t.HeldOut)}}
}

func (e *examination) tasksUnmet() {
	if e.environment == nil || e.environment.Tasks == nil || len(e.environment.Tasks.Unmet) == 0 {
		return
	}
	f := e.add(Warning, keyTasks, Asked)
	f.What = "tasks ask for more than this run gives them: " + some(e.environment.Tasks.Unmet, 0)
	f.Why = "every sandbox of a run is made of the same: what lacks something fails in the task's own program, which counts as the policy's mistake"
	f.Do = "give the sandboxes of this run what the tasks ask for, or leave such tasks out"
	f.Figures = Figures{{"unmet", float64(len(e.environment.Tasks.Unmet))}}
}

func (e *examination) verifierJudges() {
	if e.environment == nil || e.environment.Verifier == nil {
		return
	}
	v := e.environment.Verifier
	if v.Err != "" {
		f := e.add(Error, keyVerifier, Asked)
		f.What = fmt.Sprintf("the verifier of kind %s does not judge: %s", v.Kind, v.Err)
		f.Why = "an attempt without a verdict has failed, and is never a reward of 0: nothing would be trained on"
		f.Do = "correct environment.verifier, or what it asks"
		return
	}
	if !v.Judged {
		return
	}
	f := e.add(Info, keyVerifier, Asked)
	f.What = fmt.Sprintf("the verifier of kind %s gives a reward of %s where the policy says the answer of the first task, after %s s", v.Kind, short(v.Reward), short(v.Seconds))
	f.Figures = Figures{{"reward", v.Reward}, {"verdict_s", v.Seconds}}
}

func (e *examination) sandboxStarts() {
	if e.environment == nil || e.environment.Sandbox == nil {
		return
	}
	s := e.environment.Sandbox
	lacks := strings.TrimRight(s.Lacks, ". ")
	if s.Err != "" {
		f := e.add(Error, keyDriver, Asked)
		f.What = fmt.Sprintf("no sandbox of %s works here: %s", s.Driver, s.Err)
		f.Why = "every rollout that needs one would fail"
		f.Do = s.Do
	}
	if lacks != "" && (s.Secure || s.Err == "") {
		f := e.add(Warning, keyDriver, Asked)
		f.What = "the boundary of " + s.Driver + " holds, and not all of its limits do: " + lacks
		f.Why, f.Do = "code of the policy can take more than the document says", "get what is missing, or have the machine to itself"
		if !s.Secure {
			f.What = s.Driver + " is no boundary here: " + lacks
			f.Why, f.Do = "code of the policy can do whatever this user can, to files, to processes or over the network", "driver bwrap or runsc, unless what the policy writes is trusted"
		}
	}
	if s.Started {
		f := e.add(Info, keyDriver, Asked)
		f.What = fmt.Sprintf("a sandbox of %s with the document's limits started in %s s, and a program in it took %s s", s.Driver, short(s.StartS), short(s.RunS))
		f.Figures = Figures{{"start_s", s.StartS}, {"run_s", s.RunS}}
	}
}

func (e *examination) openEnvAnswers() {
	if e.environment == nil || e.environment.OpenEnv == nil || e.environment.OpenEnv.Err == "" {
		return
	}
	f := e.add(Error, keyOpenEnv, Asked)
	f.What = "the OpenEnv server is of no use: " + e.environment.OpenEnv.Err
	f.Why = "every rollout plays on it"
	f.Do = "start it, and see that environment.openenv.url is its address as this machine sees it"
}
