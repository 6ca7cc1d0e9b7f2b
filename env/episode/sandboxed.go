package episode

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
)

// SandboxedOptions say what tools a policy has in its sandbox.
type SandboxedOptions struct {
	// Tools by name: shell, python, write_file and read_file. Nil is all of them; none at all is a
	// sandbox that tests alone use.
	Tools []string
	// ToolTime bounds a call of any tool, ToolTimes those of one by its name. 0 is the box's own limit.
	ToolTime  time.Duration
	ToolTimes map[string]time.Duration
	// OutputMax is what a call's answer may have, in bytes; of more its middle is left out. Default 16 KiB.
	OutputMax int
	// CallsMax bounds the calls of one message. Default 16.
	CallsMax int
	// Retries of what failed before anything can have happened: the box did not start. Default 1; a
	// negative number is none.
	Retries int
	// Python is the program of the tool. Default python3.
	Python string
}

func (o SandboxedOptions) withDefaults() SandboxedOptions {
	if o.Tools == nil {
		o.Tools = ToolNames()
	}
	if o.OutputMax <= 0 {
		o.OutputMax = 16 << 10
	}
	if o.CallsMax <= 0 {
		o.CallsMax = 16
	}
	o.Retries = cmp.Or(o.Retries, 1)
	o.Python = cmp.Or(o.Python, "python3")
	return o
}

// Sandboxed is a World: tools in a sandbox of the rollout's own. The box is made, and given the task's
// files, when a tool or a test first uses it.
type Sandboxed struct {
	o     SandboxedOptions
	box   box
	tools json.RawMessage
	task  *taskset.Task
	// stateLow and stateHigh are the versions of the messages whose calls ran; -1 for none.
	stateLow, stateHigh int64
}

// NewSandboxed makes the world of one rollout, which closes the box with itself.
func NewSandboxed(of sandbox.Box, o SandboxedOptions) (*Sandboxed, error) {
	o = o.withDefaults()
	for _, name := range slices.Concat(o.Tools, slices.Collect(maps.Keys(o.ToolTimes))) {
		if !slices.Contains(ToolNames(), name) {
			return nil, fmt.Errorf("episode: there is no tool %q: there are %s", name, strings.Join(ToolNames(), ", "))
		}
	}
	if strings.ContainsRune(o.Python, 0) {
		return nil, fmt.Errorf("episode: there is a NUL in the name of Python %q", o.Python)
	}
	s := &Sandboxed{o: o, tools: schema(o.Tools), stateLow: -1, stateHigh: -1}
	s.box = box{Box: of, retries: o.Retries}
	return s, nil
}

// Tools implements World.
func (s *Sandboxed) Tools() json.RawMessage { return s.tools }

// Begin implements World. Nothing is made yet.
func (s *Sandboxed) Begin(_ context.Context, task *taskset.Task) ([]json.RawMessage, error) {
	s.task, s.box.task = task, task
	return nil, nil
}

// Box implements Boxed.
func (s *Sandboxed) Box() sandbox.Box { return &s.box }

// State implements Stated: messages count from the first call that may have changed a file.
func (s *Sandboxed) State() (low, high int64) { return s.stateLow, s.stateHigh }

// Close implements World.
func (s *Sandboxed) Close(ctx context.Context) error { return s.box.Close(ctx) }

// Act implements World: it runs the calls, one after the other, and is done with a message that has
// none.
func (s *Sandboxed) Act(ctx context.Context, said Message) (Answer, error) {
	if len(said.Calls) == 0 || len(s.o.Tools) == 0 {
		return Answer{Done: true}, nil
	}
	var answer Answer
	for i, call := range said.Calls {
		content := fmt.Sprintf("error: one message may call %d tools: call this one again", s.o.CallsMax)
		if i < s.o.CallsMax {
			r, err := s.call(ctx, call, said)
			if err != nil {
				return Answer{}, err
			}
			if content = r.content; r.limit != "" {
				answer.Limit = r.limit
			}
		}
		message, err := json.Marshal(toolMessage{"tool", call.ID, content})
		if err != nil {
			return Answer{}, err
		}
		answer.Messages = append(answer.Messages, message)
	}
	return answer, nil
}

type toolMessage struct {
	Role       string `json:"role"`
	ToolCallID string `json:"tool_call_id"`
	Content    string `json:"content"`
}

// reply is what a call is answered with.
type reply struct {
	content string
	limit   sandbox.Class
}

// call runs one call. What is wrong with it is its answer; an error is the sandbox's.
func (s *Sandboxed) call(ctx context.Context, call Call, said Message) (reply, error) {
	if !slices.Contains(s.o.Tools, call.Name) {
		return reply{content: fmt.Sprintf("error: there is no tool %q; there are %s", brief(call.Name), strings.Join(s.o.Tools, ", "))}, nil
	}
	arguments, err := parseArguments(call)
	if err != nil {
		return reply{content: "error: " + err.Error()}, nil
	}
	if err := s.box.Ready(ctx); err != nil {
		return reply{}, err
	}
	back := Enter(ctx, Tool, call.Name)
	if call.Name != readFile {
		s.state(said)
	}
	r, err := s.perform(ctx, call.Name, arguments)
	if err != nil {
		if r, err = mistake(err); err != nil {
			return reply{}, err // the episode ends in this span
		}
	}
	if r.limit != "" {
		Mark(ctx, r.limit)
	}
	back()
	return r, nil
}

func (s *Sandboxed) state(said Message) {
	if s.stateLow < 0 || said.VersionLow < s.stateLow {
		s.stateLow = said.VersionLow
	}
	s.stateHigh = max(s.stateHigh, said.VersionHigh)
}

func (s *Sandboxed) perform(ctx context.Context, name string, arguments map[string]string) (reply, error) {
	switch name {
	case shell:
		return s.run(ctx, name, "/bin/sh", "-c", arguments["command"])
	case python:
		return s.run(ctx, name, s.o.Python, "-c", arguments["code"])
	case writeFile:
		at, content := inBox(arguments["path"]), arguments["content"]
		if err := s.box.Write(ctx, at, []byte(content), fs.FileMode(0o644)); err != nil {
			return reply{}, err
		}
		return reply{content: fmt.Sprintf("[%d bytes written to %s]", len(content), at)}, nil
	default:
		content, err := s.box.Read(ctx, inBox(arguments["path"]), fileMax)
		if err != nil {
			return reply{}, err
		}
		return reply{content: shorten(valid(content), s.o.OutputMax)}, nil
	}
}

func (s *Sandboxed) run(ctx context.Context, name string, argv ...string) (reply, error) {
	command := sandbox.Command{Argv: argv, Time: s.o.ToolTime}
	if limit := s.o.ToolTimes[name]; limit > 0 {
		command.Time = limit
	}
	if s.task != nil {
		command.Env = s.task.Wants.Env
	}
	result, err := s.box.Run(ctx, command)
	if err != nil {
		return reply{}, err
	}
	return reply{describe(result, s.o.OutputMax), result.Limit}, nil
}

// inBox is a path as the policy wrote it, from where its commands begin.
func inBox(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(sandbox.Work, name)
}
