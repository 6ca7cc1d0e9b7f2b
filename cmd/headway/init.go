package main

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/starter"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
)

// initCmd writes the files that a new project begins with.
type initCmd struct {
	command.Output
	Dir         string `arg:"" help:"The directory to write into, made where there is none."`
	Trainer     string `enum:",torch,jax,hf,distill,tinker,embedded" default:"" placeholder:"NAME" help:"Which program trains: torch or jax (the embedded engine's small model), tinker (a service), embedded (Headway itself). Or hf (a model of transformers), or distill (the same, from a teacher)."`
	Engine      string `enum:",embedded,vllm,sglang,llamacpp,tinker" default:"" placeholder:"NAME" help:"Which engine samples: embedded (a small model on the CPU), vllm, sglang, llamacpp, or tinker (a service)."`
	Environment string `enum:",python,tasks,agent" default:"" placeholder:"NAME" help:"Which program asks and judges: python (a function), tasks (a file and a verifier), agent (a program that speaks OpenAI's API)."`
}

// Help says what is written; the command line prints it after the flags.
func (*initCmd) Help() string {
	return `It writes run.yaml, a README.md with the commands, and train.py, environment.py or tasks.jsonl, as the choice needs.
The trainers torch, jax and embedded take the engine embedded, and tinker is both.
The trainer hf takes vllm, sglang and llamacpp, and distill takes vllm and sglang.
A terminal is asked for each choice that no flag makes. No file is overwritten.`
}

// begun is what init prints with --json.
type begun struct {
	Directory string `json:"directory"`
	starter.Choice
	Files []string `json:"files"`
	// Commands train the project, each in a process of its own, in the directory.
	Commands []string `json:"commands"`
}

// Run asks for what no flag says, and writes the files.
func (c *initCmd) Run(a *app.Process) error {
	choice := starter.Choice{Trainer: c.Trainer, Engine: c.Engine, Environment: c.Environment}
	if c.Dir == "" {
		return failure.Usage("name a directory, such as my-run, or . for this one", "the directory's name is empty")
	}
	if err := choice.Check(); err != nil {
		return err
	}
	if err := c.complete(a, &choice); err != nil {
		return err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	project := starter.NewProject(choice, filepath.Base(dir))
	files, err := project.Files()
	if err != nil {
		return err
	}
	_, stop := command.Interruptible() // Ctrl-C waits for the few milliseconds that writing takes
	defer stop()
	if err := starter.Write(filepath.Clean(c.Dir), files); err != nil {
		return err
	}
	done := begun{Directory: c.Dir, Choice: choice, Files: []string{}, Commands: project.Commands()}
	for _, f := range files {
		done.Files = append(done.Files, f.Name)
	}
	slices.Sort(done.Files)
	if c.JSON {
		return printJSON(a.Stdout, done)
	}
	_, err = fmt.Fprintf(a.Stdout, "%s has %s.\n\nNext, of its README.md:\n\n  cd %s\n  headway doctor run.yaml\n  %s\n",
		c.Dir, strings.Join(done.Files, ", "), printable.Word(c.Dir), strings.Join(done.Commands, "\n  "))
	return err
}

// complete makes the choices that are open. One of which a single option fits is made without a question.
func (c *initCmd) complete(a *app.Process, choice *starter.Choice) error {
	answers := bufio.NewReader(a.Stdin)
	for _, part := range choice.Parts() {
		if *part.Value != "" {
			continue
		}
		options := choice.Open(part)
		if len(options) == 1 {
			*part.Value = options[0].Name
			continue
		}
		if c.JSON || !a.IsTerminal(a.Stdin) {
			return failure.Usage("say --"+part.Name+" with one of "+strings.Join(starter.Names(options), ", "),
				"there is no terminal to ask at: %s", part.Question)
		}
		name, err := asked(a.Stderr, answers, part, options)
		if err != nil {
			return err
		}
		*part.Value = name
	}
	return nil
}

// asked is a person's answer to a question, by name or number; an empty line is the first option.
func asked(to io.Writer, answers *bufio.Reader, part starter.Part, options []starter.Option) (string, error) {
	fmt.Fprintf(to, "%s\n", part.Question)
	for i, o := range options {
		fmt.Fprintf(to, "  %d  %-9s %s\n", i+1, o.Name, o.Summary)
	}
	for {
		fmt.Fprintf(to, "%s [%s] ", part.Name, options[0].Name)
		line, err := answers.ReadString('\n')
		said := strings.ToLower(strings.TrimSpace(line))
		if err != nil && said == "" {
			return "", failure.Usage("nothing was written", "the answers end before the question: %s", part.Question)
		}
		if said == "" {
			return options[0].Name, nil
		}
		for i, o := range options {
			if said == o.Name || said == fmt.Sprint(i+1) {
				return o.Name, nil
			}
		}
		fmt.Fprintf(to, "%q is none of them: say a name, or a number from 1 to %d\n", said, len(options))
	}
}
