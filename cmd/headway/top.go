package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
)

// topCmd follows a control plane in the terminal.
type topCmd struct {
	Server    string  `arg:"" optional:"" name:"url" default:"http://127.0.0.1:7070" help:"Address of the control plane, or the run directory of one on this machine."`
	TokenFile string  `placeholder:"FILE" help:"A file with the token alone, or the server's token file (default: the variable HEADWAY_TOKEN)."`
	CA        string  `name:"ca" placeholder:"FILE" help:"Certificate (PEM) that signed the server's, where the system does not know it."`
	Every     float64 `default:"1" placeholder:"SECONDS" help:"Time between two looks."`
}

// Run shows the control plane until somebody leaves. Where standard output is no terminal it is a
// status again and again, as status --watch has it.
func (c *topCmd) Run(a *app.Process) error {
	look := &statusCmd{Server: c.Server, TokenFile: c.TokenFile, CA: c.CA, Watch: true, Every: c.Every, command: "top"}
	if !a.IsTerminal(a.Stdout) || a.Getenv("TERM") == "dumb" {
		return look.follow(a)
	}
	if err := look.check(); err != nil {
		return err
	}
	client, err := newStatusClient(a, look)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	first, _, err := client.get(ctx)
	if err != nil {
		return err
	}
	view := newTopView(client.base.String(), a.Now, c.Every, a.Getenv("NO_COLOR") != "")
	view.take(first)
	view.ask = func() tea.Msg {
		status, _, err := client.get(ctx)
		return looked{status, err}
	}
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(a.Stdout), tea.WithoutSignalHandler(), tea.WithFPS(framesPerS)}
	if a.IsTerminal(a.Stdin) {
		options = append(options, tea.WithInput(a.Stdin))
	} else {
		options = append(options, tea.WithInput(io.Reader(nil)))
	}
	_, err = tea.NewProgram(view, options...).Run()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// looked is what one look found; due says that it is time for the next one.
type (
	looked struct {
		status protocol.Status
		err    error
	}
	due struct{}
)

// after asks for the next look.
func after(seconds float64) tea.Cmd {
	return tea.Tick(time.Duration(seconds*float64(time.Second)), func(time.Time) tea.Msg { return due{} })
}
