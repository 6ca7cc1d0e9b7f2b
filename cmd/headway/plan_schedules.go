package main

import (
	"fmt"
	"io"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/schedule"
)

// schedulesOptions is how a comparison of schedules is printed.
type schedulesOptions struct {
	// JSON prints one document instead of tables; HTML names a page to write, "" for none.
	JSON bool
	HTML string
	// Columns of the terminal, 0 where there is none.
	Columns int
	// About says what is compared and where its figures come from, a sentence each.
	About []string
}

// planSchedules compares the schedules of a workload and prints them.
func planSchedules(a *app.Process, in schedule.Input, o schedulesOptions) error {
	comparison, err := schedule.Compare(in)
	if err != nil {
		return failure.Usage("change the document's keys that this comes from", "schedules: %w", err)
	}
	if o.HTML != "" {
		page := func(w io.Writer) error { return schedule.HTML(w, comparison, o.About) }
		if err := writeWhole(o.HTML, page); err != nil {
			return failure.Usage("name a file in a folder that can be written to", "--html: %w", err)
		}
		fmt.Fprintf(a.Stderr, "%s is written\n", o.HTML)
	}
	if o.JSON {
		return printJSON(a.Stdout, comparison)
	}
	for _, line := range o.About {
		if _, err := fmt.Fprintln(a.Stdout, line); err != nil {
			return err
		}
	}
	return schedule.Text(a.Stdout, comparison, o.Columns)
}
