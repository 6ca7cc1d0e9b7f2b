package main

import (
	"io"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/observe/report"
)

// judgement is embedded by every command that judges: it prints what to do first.
type judgement struct {
	command.Output
	Full bool `help:"Print all tables, figures and conditions behind the answer too."`
}

// print writes the JSON document, or the answer and, where it is asked for, the rest. The rest is a text
// for so many columns.
func (j judgement) print(a *app.Process, document any, answer report.Answer, rest func(columns int) string) error {
	if j.JSON {
		return printJSON(a.Stdout, document)
	}
	columns := command.Columns(a)
	if j.Full {
		answer.Rest = ""
	}
	text := answer.Text(columns)
	if j.Full {
		text += "\n" + report.TrimLines(rest(columns))
	}
	_, err := io.WriteString(a.Stdout, text)
	return err
}
