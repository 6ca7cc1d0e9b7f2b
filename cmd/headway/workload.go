package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/sessions"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload/session"
	"github.com/headway-rl/headway/observe/report"
)

// workloadCmd describes recorded sessions, and writes them in another format.
type workloadCmd struct {
	command.Output
	File string `arg:"" help:"File of recorded sessions, which may be compressed (.gz, .zst), a run directory, or the trace of a run."`
	To   string `enum:"mooncake,rollouts,player," default:"" placeholder:"mooncake|rollouts|player" help:"Write the sessions in this format: to --out, or to standard output."`
	Out  string `placeholder:"FILE" help:"New file for --to."`

	PromptTokens int `placeholder:"N" help:"Length of the prompts of a run that has a trace and no episodes."`
}

// Help lists the formats; the command line prints it after the flags.
func (*workloadCmd) Help() string {
	return `The formats, which the first line shows:

  mooncake     requests with arrival times and blocks of prefixes (Mooncake, AIPerf)
  rollouts     rollouts of groups, with the tokens of every turn, and tool times where they were recorded
  claude-code  sessions with sub-agents and blocks of prefixes; read, and not written
  player       conversations with the tokens and the gap of every turn (trace_player)
  headway      a run of this program: turn by turn by its episodes, else a rollout as one call by its trace

A document plays such a file with modelled.sessions: FILE, in simulate, predict and plan.`
}

// workloadReport is what headway workload --json prints.
type workloadReport struct {
	File string `json:"file"`
	session.Summary
	// Written is the file that --to wrote.
	Written string `json:"written,omitempty"`
}

// Run reads the file once.
func (c *workloadCmd) Run(a *app.Process) error {
	if c.Out != "" && c.To == "" {
		return failure.Usage("--to says in which format", "--out %s: nothing is written without --to", c.Out)
	}
	if c.PromptTokens < 0 || c.PromptTokens > session.MaxTokens {
		return failure.Usage("", "--prompt-tokens %d: want 1 to %d", c.PromptTokens, session.MaxTokens)
	}
	if c.JSON && c.To != "" && c.Out == "" {
		return failure.Usage("--out FILE takes the sessions", "--json and --to both write to standard output")
	}
	record, err := sessions.Open(c.File, c.PromptTokens)
	if errors.Is(err, sessions.ErrNoPrompts) {
		return failure.Usage("--prompt-tokens N says how long they were", "%w", err)
	}
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			err = cannotRead(c.File, err)
		}
		return failure.Usage("headway workload --help lists the formats", "%w", err)
	}
	defer record.Close()
	sum := session.NewCounter(record)
	writer, out, err := c.writer(a, record)
	if err != nil {
		return err
	}
	if err := read(record, sum, writer); err != nil {
		if out != nil {
			err = errors.Join(err, out.Close(), os.Remove(c.Out))
		}
		return failure.Run("", "%w", err)
	}
	if out != nil {
		if err := out.Close(); err != nil {
			return failure.Run("", "--out: %w", err)
		}
	}
	return c.tell(a, sum.Summary(), writer)
}

// writer makes what writes the sessions, nil for none, and the file behind it, nil for standard output.
func (c *workloadCmd) writer(a *app.Process, record *session.Record) (*session.Writer, *os.File, error) {
	if c.To == "" {
		return nil, nil, nil
	}
	var out io.Writer = a.Stdout
	var file *os.File
	if c.Out != "" {
		var err error
		if file, err = createFile("--out", c.Out); err != nil {
			return nil, nil, err
		}
		out = file
	}
	writer, err := session.NewWriter(out, session.Format(c.To), record.BlockTokens(), record.Grouped())
	if err != nil {
		err = failure.Usage("", "--to %s: %w", c.To, err)
		if file != nil {
			err = errors.Join(err, file.Close(), os.Remove(c.Out))
		}
	}
	return writer, file, err
}

// read reads a record to its end.
func read(record *session.Record, sum *session.Counter, writer *session.Writer) error {
	for s, err := range record.Sessions() {
		if err != nil {
			return err
		}
		sum.Add(&s)
		if writer == nil {
			continue
		}
		if err := writer.Write(s); err != nil {
			return err
		}
	}
	if writer == nil {
		return nil
	}
	return writer.Close()
}

// tell prints what was read and written. What the written format cannot say goes to standard error.
func (c *workloadCmd) tell(a *app.Process, s session.Summary, writer *session.Writer) error {
	if writer != nil {
		for _, n := range []struct {
			n    int
			text string
		}{{writer.Empty, "without output: written with 1 token, which servers need"}, {writer.Shrunk, "whose context begins anew, which " + c.To + " cannot say: written as if it went on"}} {
			if n.n > 0 {
				fmt.Fprintf(a.Stderr, "%s %s\n", report.Counted(n.n, "call"), n.text)
			}
		}
		if c.Out == "" {
			return nil
		}
	}
	if c.JSON {
		return printJSON(a.Stdout, workloadReport{c.File, s, c.Out})
	}
	fmt.Fprint(a.Stdout, describe(c.File, s))
	if c.Out != "" {
		fmt.Fprintf(a.Stdout, "written: %s (%s)\n", c.Out, c.To)
	}
	return nil
}

// describe is a summary for people.
func describe(name string, s session.Summary) string {
	count := func(n int, thing string) string { return report.Count(int64(n)) + " " + thing }
	head := []string{count(s.Sessions, "sessions"), count(s.Calls, "calls")}
	if s.Groups > 0 {
		head = append(head, count(s.Groups, "groups of one prompt"))
	}
	if s.Agents > 0 {
		head = append(head, fmt.Sprintf("%s with %s", count(s.Agents, "sub-agents"), count(s.AgentCalls, "of the calls")))
	}
	if s.LastStartS > 0 {
		head = append(head, "starts over "+report.Figure(s.LastStartS, 0)+" s")
	}
	text := fmt.Sprintf("%s: %s\n", name, s.Format)
	for _, part := range head {
		text += "  " + part + "\n"
	}
	table := report.Table{Header: []string{"", "mean", "min", "median", "90 %", "max"}}
	row := func(name string, of session.Stats, decimals int) {
		cells := []string{name}
		for _, x := range []float64{of.Mean, of.Min, of.Median, of.P90, of.Max} {
			cells = append(cells, report.Figure(x, decimals))
		}
		table.Rows = append(table.Rows, cells)
	}
	row("input tokens a call", s.Input, 0)
	row("output tokens a call", s.Output, 0)
	if s.Calls > s.Sessions {
		row("turns a session", s.Turns, 1)
		row("tokens of its first input", s.Prompt, 0)
		row("output tokens of it all", s.Generated, 0)
	}
	if s.Gap != (session.Stats{}) {
		row("gap before a call, s", s.Gap, 2)
	}
	about := ""
	if s.Estimated {
		about = "about "
	}
	text += table.String() + fmt.Sprintf("a prefix cache without bounds has %s%s of the input tokens\n", about, report.Share(s.Reused))
	if s.Shrunk > 0 {
		text += fmt.Sprintf("%s: the context begins anew there\n", report.Counted(s.Shrunk, "call"))
	}
	return text
}
