package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/probe"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/doctor"
	"github.com/headway-rl/headway/predict/experiment"
)

// doctorCmd says what is wrong with a document before it costs anything.
type doctorCmd struct {
	judgement
	File    string   `arg:"" optional:"" help:"The document; without one the defaults are examined."`
	Set     []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key of FILE by its dotted path. Repeatable."`
	NoProbe bool     `help:"Ask no server what it can, and start no sandbox and no verifier."`
}

// examination is what headway doctor --json prints.
type examination struct {
	Findings []doctor.Finding `json:"findings"`
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
}

// Run examines and prints. The error is a failure where a finding is an error.
func (c *doctorCmd) Run(application *app.Process) error {
	stop := command.Working(application, "examining the document and what it names")
	findings, err := c.examine(application)
	stop()
	if err != nil {
		return err
	}
	d := examination{Findings: append([]doctor.Finding{}, findings...)}
	for _, f := range findings {
		switch f.Severity {
		case doctor.Error:
			d.Errors++
		case doctor.Warning:
			d.Warnings++
		}
	}
	err = c.print(application, d, doctor.First(d.Findings), d.text)
	if err == nil && d.Errors > 0 {
		err = failure.Run("each error says what to change", "the document has %s", report.Counted(d.Errors, "error"))
	}
	return err
}

// examine makes the findings. A document that config refuses for what doctor can
// explain is explained; any other mistake is the caller's.
func (c *doctorCmd) examine(application *app.Process) ([]doctor.Finding, error) {
	raw, err := config.Read(c.File)
	if err != nil {
		return nil, err
	}
	if raw, err = raw.Set(c.Set...); err != nil {
		return nil, err
	}
	document, err := raw.Resolve()
	if err != nil {
		if findings, all := doctor.Refuted(document, err); all {
			return findings, nil
		}
		return nil, err
	}
	examined, err := experiment.DoctorCase(document)
	if err != nil {
		return nil, err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	probe.ExamineServers(ctx, document, !c.NoProbe, &examined)
	probe.ExamineEnvironment(ctx, application, document, !c.NoProbe, &examined)
	probe.ExamineFleet(ctx, document, !c.NoProbe, &examined)
	if ctx.Err() != nil { // what was broken off says nothing of the document
		return nil, failure.Run("", "interrupted")
	}
	findings, err := doctor.Check(examined)
	if _, is := errors.AsType[*workload.FieldError](err); is { // speeds beyond what a closed form takes
		return nil, experiment.FlagError(err)
	}
	return findings, err
}

// text has a table of all findings, then each with its reason, what to do and its figures.
func (d examination) text(columns int) string {
	var b strings.Builder
	table := report.Table{Header: []string{"", "finding", "about", "known by"}}
	for _, f := range d.Findings {
		table.Rows = append(table.Rows, []string{string(f.Severity), f.Code, f.Place(), basisOf(f)})
	}
	if len(d.Findings) > 0 {
		b.WriteString(table.Fit(columns))
	}
	for _, f := range d.Findings {
		line := func(label, text, end string) {
			if text != "" {
				b.WriteString(report.Indented(label, text+end, columns))
			}
		}
		b.WriteString("\n")
		line("", fmt.Sprintf("%s %s: %s", f.Severity, f.Code, f.What), ".")
		line("  why  ", f.Why, ".")
		line("  do   ", f.Do, ".")
		line("  seen ", strings.Join(f.Scenarios, ", "), ".")
		line("       ", figuresOf(f), "")
	}
	fmt.Fprintf(&b, "\n%s, %s, %s in all\n", report.Counted(d.Errors, "error"), report.Counted(d.Warnings, "warning"), report.Counted(len(d.Findings), "finding"))
	return b.String()
}

// basisOf says how a finding is known.
func basisOf(f doctor.Finding) string {
	if f.Groups > 0 {
		return fmt.Sprintf("%s of %s groups", f.Basis, report.Count(f.Groups))
	}
	return string(f.Basis)
}

// figuresOf lists the numbers behind a finding.
func figuresOf(f doctor.Finding) string {
	parts := make([]string, len(f.Figures))
	for i, figure := range f.Figures {
		parts[i] = figure.Name + " " + strconv.FormatFloat(figure.Value, 'g', 4, 64)
	}
	return strings.Join(parts, ", ")
}
