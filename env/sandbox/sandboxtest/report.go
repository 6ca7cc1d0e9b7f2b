package sandboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
)

// Row is what became of one attack.
type Row struct {
	// Attack by name, and what it tries in words.
	Attack, Tries string
	// Outcome is Contained, Escaped or NotLimited.
	Outcome string
	// How says how it was held, or the thing that got out.
	How string
}

// Outcomes of a row.
const (
	Contained = "contained"
	Escaped   = "escaped"
	// NotLimited: it was not tried, for no such limit is claimed on that host.
	NotLimited = "not limited"
)

// Report is what the isolation suite found of a driver on one machine.
type Report struct {
	Driver   string
	Boundary sandbox.Boundary
	// Versions of the driver's own program and of the kernel, by name; Date it was found.
	Versions map[string]string
	Date     string
	Rows     []Row
}

// Marks around the part of docs/reference/attacks.md that is written from the reports.
const (
	generatedFrom = "<!-- generated: isolation -->\n"
	generatedTo   = "<!-- end: isolation -->\n"
)

// unattacked are the drivers whose boundary is elsewhere, so that no attack was made on them.
var unattacked = []struct{ driver, why string }{
	{"swerex", "its containers are the operator's"},
	{"kubernetes", "no cluster with a kubelet was at hand"},
	{"e2b", "the service was not at hand"},
}

// ReadReports reads what was found of each driver, in the order of their names.
func ReadReports(dir string) ([]Report, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no reports", dir)
	}
	var reports []Report
	for _, path := range paths {
		var report Report
		text, err := os.ReadFile(path)
		if err := errors.Join(err, json.Unmarshal(text, &report)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// WithReports replaces the generated part of a document.
func WithReports(text string, reports []Report) (string, error) {
	i, j := strings.Index(text, generatedFrom), strings.Index(text, generatedTo)
	if i < 0 || j < i {
		return "", fmt.Errorf("the document lacks the lines %q and %q", generatedFrom, generatedTo)
	}
	var part strings.Builder
	writeBoundaries(&part, reports)
	writeAttacks(&part, reports)
	return text[:i+len(generatedFrom)] + part.String() + text[j:], nil
}

func writeBoundaries(part *strings.Builder, reports []Report) {
	part.WriteString("\n| recorded of | with | on |\n|---|---|---|\n")
	for _, r := range reports {
		var versions []string
		for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
			versions = append(versions, name+" "+r.Versions[name])
		}
		fmt.Fprintf(part, "| `%s` | %s | %s |\n", r.Driver, strings.Join(versions, ", "), r.Date)
	}
	for _, u := range unattacked {
		fmt.Fprintf(part, "| `%s` | not attacked: %s | never |\n", u.driver, u.why)
	}
	part.WriteString("\n| kept apart, or limited |")
	for _, r := range reports {
		fmt.Fprintf(part, " `%s` |", r.Driver)
	}
	part.WriteString("\n|---|" + strings.Repeat("---|", len(reports)) + "\n")
	for _, claim := range []struct {
		name string
		of   func(b sandbox.Boundary) bool
	}{
		{"files", func(b sandbox.Boundary) bool { return b.Files }},
		{"processes", func(b sandbox.Boundary) bool { return b.Processes }},
		{"network", func(b sandbox.Boundary) bool { return b.Network }},
		{"kernel: a defect of the host's is not at once one of the boundary", func(b sandbox.Boundary) bool { return b.Kernel }},
		{"memory", func(b sandbox.Boundary) bool { return b.Memory }},
		{"processor time", func(b sandbox.Boundary) bool { return b.CPU }},
		{"number of processes", func(b sandbox.Boundary) bool { return b.ProcessCount }},
		{"bytes written", func(b sandbox.Boundary) bool { return b.Disk }},
		{"number of files", func(b sandbox.Boundary) bool { return b.FileCount }},
	} {
		fmt.Fprintf(part, "| %s |", claim.name)
		for _, r := range reports {
			fmt.Fprintf(part, " %s |", map[bool]string{true: "yes", false: "no"}[claim.of(r.Boundary)])
		}
		part.WriteString("\n")
	}
}

func writeAttacks(part *strings.Builder, reports []Report) {
	part.WriteString("\n| attack | tries to |")
	for _, r := range reports {
		fmt.Fprintf(part, " `%s` |", r.Driver)
	}
	part.WriteString("\n|---|---|" + strings.Repeat("---|", len(reports)) + "\n")
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for i, row := range reports[0].Rows {
		fmt.Fprintf(part, "| %s | %s |", cell.Replace(row.Attack), cell.Replace(row.Tries))
		for _, r := range reports {
			outcome := "not tried"
			if i < len(r.Rows) && r.Rows[i].Attack == row.Attack {
				outcome = r.Rows[i].Outcome
			}
			fmt.Fprintf(part, " %s |", outcome)
		}
		part.WriteString("\n")
	}
	part.WriteString("\n")
}
