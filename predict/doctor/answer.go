package doctor

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// First is what a document's owner should do, the gravest first.
func First(findings []Finding) report.Answer {
	var a report.Answer
	count := map[Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
		switch {
		case f.Do == "":
			a.Notes = append(a.Notes, f.What+".")
		case f.Severity == Info:
			a.Notes = append(a.Notes, fmt.Sprintf("%s: %s.", f.What, f.Do))
		default:
			a.Advice = append(a.Advice, report.Advice{Do: fmt.Sprintf("%s: %s.", f.place(f.File[strings.LastIndexByte(f.File, '/')+1:]), f.Do), Why: f.What + "."})
		}
	}
	switch {
	case count[Error] > 0:
		a.Verdict = fmt.Sprintf("Do not run it yet: %s, %s.", report.Counted(count[Error], "error"), report.Counted(count[Warning], "warning"))
	case count[Warning] > 0:
		a.Verdict = fmt.Sprintf("It runs, with %s.", report.Counted(count[Warning], "warning"))
	default:
		a.Verdict = "Run it: nothing found that has to change."
	}
	if len(findings) > 0 {
		a.Rest = "--full has every finding with reason and figures, --json all."
	}
	return a
}

// Place is the key of a finding and, where the document gives it, its line.
func (f *Finding) Place() string { return f.place(f.File) }

// place is the key beside a file called so.
func (f *Finding) place(file string) string {
	switch {
	case f.Line > 0:
		return fmt.Sprintf("%s (%s:%d)", f.Key, file, f.Line)
	case f.File != "":
		return fmt.Sprintf("%s (%s)", f.Key, file)
	}
	return f.Key
}
