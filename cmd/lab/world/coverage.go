package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// coverageCmd prints which fault struck in which state.
type coverageCmd struct {
	Files   []string `arg:"" name:"file" type:"existingfile" help:"Ledgers of soak, and documents that run, soak or check print with --json."`
	Reasons string   `type:"existingfile" placeholder:"FILE" help:"A JSON object that says why a pair is empty, by STATE/FAULT. A * stands for any text."`
	command.Output
}

// coverageReport is what coverage says with --json.
type coverageReport struct {
	Pairs map[string]int64 `json:"pairs"`
	// Empty are the pairs that never met, with the reason for it; "" for none.
	Empty map[string]string `json:"empty"`
	Marks map[string]int64  `json:"marks,omitempty"`
}

// Run adds up the files, and prints a table.
func (c *coverageCmd) Run(a *app.Process) error {
	r := coverageReport{Pairs: map[string]int64{}, Empty: map[string]string{}, Marks: map[string]int64{}}
	for _, path := range c.Files {
		if err := r.read(path); err != nil {
			return failure.Usage("", "%s: %w", path, err)
		}
	}
	if len(r.Pairs) == 0 {
		return failure.Usage("", "the files count no pairs of a state and a fault")
	}
	reasons := map[string]string{}
	if c.Reasons != "" {
		text, err := os.ReadFile(c.Reasons)
		if err == nil {
			err = json.Unmarshal(text, &reasons)
		}
		if err != nil {
			return failure.Usage("", "--reasons %s: %w", c.Reasons, err)
		}
	}
	states, faults := r.axes()
	for _, state := range states {
		for _, fault := range faults {
			if pair := state + "/" + fault; r.Pairs[pair] == 0 {
				r.Empty[pair] = reason(reasons, pair)
			}
		}
	}
	if c.JSON {
		if err := report.JSON(a.Stdout, r); err != nil {
			return err
		}
	} else {
		r.print(a.Stdout, states, faults)
	}
	bare := slices.DeleteFunc(slices.Sorted(maps.Keys(r.Empty)), func(pair string) bool { return r.Empty[pair] != "" })
	if c.Reasons != "" && len(bare) > 0 {
		return failure.Run("", "%s empty without a reason in %s: the first is %s", report.Counted(len(bare), "pair"), c.Reasons, bare[0])
	}
	return nil
}

// read adds one file, which holds one JSON document or several.
func (r *coverageReport) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	documents := json.NewDecoder(f)
	for {
		var d struct {
			Pairs, Marks map[string]int64
			Totals       struct{ Pairs, Marks map[string]int64 }
		}
		if err := documents.Decode(&d); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for _, add := range []struct{ to, from map[string]int64 }{{r.Pairs, d.Pairs}, {r.Pairs, d.Totals.Pairs}, {r.Marks, d.Marks}, {r.Marks, d.Totals.Marks}} {
			for name, n := range add.from {
				add.to[name] += n
			}
		}
	}
}

// axes are the states and the faults of the pairs.
func (r *coverageReport) axes() (states, faults []string) {
	left, right := map[string]bool{}, map[string]bool{}
	for pair := range r.Pairs {
		at := max(strings.LastIndex(pair, "/"), 0)
		left[pair[:at]], right[strings.TrimPrefix(pair[at:], "/")] = true, true
	}
	return slices.Sorted(maps.Keys(left)), slices.Sorted(maps.Keys(right))
}

// reason is why a pair is empty: that of the pair itself, else of the first pattern in alphabetical order.
func reason(reasons map[string]string, pair string) string {
	if text := reasons[pair]; text != "" {
		return text
	}
	for _, pattern := range slices.Sorted(maps.Keys(reasons)) {
		if matches(pattern, pair) {
			return reasons[pattern]
		}
	}
	return ""
}

// matches reports whether a text is that of a pattern, in which * stands for any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, last)
}

// print prints a row for each fault and a column for each state, then what is empty.
func (r *coverageReport) print(w io.Writer, states, faults []string) {
	rows := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(rows, "fault\t%s\t\n", strings.Join(states, "\t"))
	for _, fault := range faults {
		fmt.Fprintf(rows, "%s\t", fault)
		for _, state := range states {
			if n := r.Pairs[state+"/"+fault]; n > 0 {
				fmt.Fprintf(rows, "%s\t", report.Count(n))
			} else {
				fmt.Fprint(rows, "–\t")
			}
		}
		fmt.Fprintln(rows)
	}
	rows.Flush()
	if len(r.Marks) > 0 {
		fmt.Fprintf(w, "\nmarks: %s\n", counts(r.Marks))
	}
	fmt.Fprintf(w, "\n%d of %s of a state and a fault are empty\n", len(r.Empty), report.Counted(len(states)*len(faults), "pair"))
	for _, pair := range slices.Sorted(maps.Keys(r.Empty)) {
		if text := r.Empty[pair]; text != "" {
			fmt.Fprintf(w, "%s: %s\n", pair, text)
		} else {
			fmt.Fprintf(w, "%s: NO REASON\n", pair)
		}
	}
}
