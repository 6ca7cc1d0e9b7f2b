package parts

import (
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/episode/openenv"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
	"github.com/headway-rl/headway/internal/failure"
	"net/http"
)

// LoadTasks reads the task file, by columns where it is stored by them: nil refuses such files. All that is wrong with it
// is said at once, by file and line.
func LoadTasks(cfg config.Config, columns taskset.Columns) (*taskset.Set, error) {
	t := cfg.Environment.Tasks
	opt := taskset.Options{
		Paths: []string{t.File}, Columns: columns, HeldOut: t.HeldOut, System: t.System, Levels: cfg.Filter.Curriculum.Levels,
		Map: taskset.Mapping{ID: t.ID, Prompt: t.Prompt, Answer: t.Answer, Level: t.Level, Files: t.Files, Hidden: t.Hidden, Test: t.Test},
	}
	if t.HeldOutFile != "" {
		opt.HeldOutPaths = []string{t.HeldOutFile}
	}
	set, err := taskset.Load(opt)
	if err != nil {
		return nil, failure.Usage("correct the file, or say in environment.tasks which of its fields are what", "environment.tasks: %w", err)
	}
	return set, nil
}

// VerifierOf makes the verifier of a document.
func VerifierOf(cfg config.Config) (*verifier.Bounded, error) {
	opt, err := verifierOptions(cfg.Environment)
	if err != nil {
		return nil, err
	}
	judge, err := verifier.New(opt)
	if err != nil {
		return nil, failure.Usage("correct environment.verifier", "environment.verifier: %w", err)
	}
	return judge, nil
}

func verifierOptions(e config.Environment) (verifier.Options, error) {
	v := e.Verifier
	opt := verifier.Options{
		Kind: v.Kind, Concurrency: v.Concurrency, TimeoutS: v.TimeoutS, Retries: v.Retries,
		Extract: v.Extract, Marker: v.Marker, Pattern: v.Pattern, IgnoreCase: v.IgnoreCase, IgnoreSpace: v.IgnoreSpace, Text: v.Text, Tolerance: v.Tolerance,
		Expression: v.Expression, File: v.File, Command: v.Command, URL: v.URL, Test: v.Test, Source: v.Source, RewardKey: v.RewardKey,
	}
	if v.Retries == 0 {
		opt.Retries = -1 // the document says none
	}
	if len(v.Range) == 2 {
		opt.Range = [2]float64(v.Range)
	}
	if v.Kind == verifier.Tests {
		for class := range FailOn(e.OnLimit) {
			opt.LimitFailures = append(opt.LimitFailures, class)
		}
	}
	secret, err := SecretOf("environment.verifier.key_file", v.KeyFile)
	if secret != "" {
		opt.Headers = map[string]string{"Authorization": "Bearer " + secret}
	}
	return opt, err
}

// FailOn are the limits that end an attempt as failed.
func FailOn(l config.OnLimit) map[sandbox.Class]bool {
	fail := map[sandbox.Class]bool{}
	for class, word := range map[sandbox.Class]string{
		sandbox.OutOfMemory: l.OutOfMemory, sandbox.Timeout: l.Timeout, sandbox.Processes: l.Processes, sandbox.Disk: l.Disk, sandbox.Output: l.Output,
	} {
		if word == "fail" {
			fail[class] = true
		}
	}
	return fail
}

// OpenenvOf is the OpenEnv server of a document, which is asked nothing yet.
func OpenenvOf(o config.OpenEnv) (*openenv.Server, error) {
	secret, err := SecretOf("environment.openenv.key_file", o.KeyFile)
	if err != nil {
		return nil, err
	}
	opt := openenv.Options{URL: o.URL, Mode: openenv.Mode(o.Mode), Field: o.Action, Show: o.Observation, StepTimeout: config.Seconds(o.StepS)}
	if secret != "" {
		opt.Header = http.Header{"Authorization": {"Bearer " + secret}}
	}
	server, err := openenv.New(opt)
	if err != nil {
		return nil, failure.Usage("correct environment.openenv", "%w", err)
	}
	return server, nil
}
