package reproduce

import (
	"fmt"
	"io"
	"strings"
)

// markdownHead begins the document.
const markdownHead = `# Reference: how near do predictions come to published measurements?

What others printed and measured, beside what Headway's closed forms and simulator say from the same inputs.
Where an input was not published, the figure is not computable, or what was assumed stands beside it. Where a figure
is near to a measured one because an input was assumed for that, calibrated on it, or determines it, its row says so,
and the overview sums no error of it up. This document is generated: ` + "`headway reproduce --markdown docs/reproduce.md`" + `.
The same with figures as a page: ` + "`headway reproduce --html reproduce.html`" + `; as data: ` + "`--json`" + `.

*Closed form* is the published formula from the row's own inputs, *corrected* ours with the corrections of
[theory.md](theory.md), *simulated* the loop that runs in production in virtual time: the mean over 5 seeds with
its 95 % interval (fewer or more seeds where a case says so). *Ours − measured* takes the best of them: simulated, else corrected, else closed.
`

// Markdown prints the result as a document. Every case stands between marks that name
// it, so that one of them can be compared with what is kept.
func (r Result) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(markdownHead)
	if len(r.Cases) > 1 {
		overview := r.Overview()
		fmt.Fprintf(&b, "\n## Overview\n\n%s:\n\n%s", overview.Title, markdownTable(overview))
	}
	for _, c := range r.Cases {
		b.WriteString("\n" + c.Markdown())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown is the case as a section of the document, with the marks around it.
func (c Case) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- generated: %s -->\n## %s\n\n`headway reproduce %s`. Source: %s.\n\n", c.Name, c.Title, c.Name, strings.TrimSuffix(c.Source, "."))
	for _, line := range c.Setup {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	for _, g := range c.tables() {
		fmt.Fprintf(&b, "\n%s\n\n%s", g.Title, markdownTable(g))
	}
	if len(c.Findings) > 0 {
		b.WriteString("\nWhat this shows:\n\n")
	}
	for _, finding := range c.Findings {
		fmt.Fprintf(&b, "- %s\n", finding)
	}
	fmt.Fprintf(&b, "<!-- end: %s -->\n", c.Name)
	return b.String()
}

// markdownTable is a grid as a table.
func markdownTable(g Grid) string {
	var b strings.Builder
	line := func(cells []string) {
		escaped := make([]string, len(cells))
		for i, cell := range cells {
			escaped[i] = strings.ReplaceAll(cell, "|", "\\|")
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(escaped, " | "))
	}
	line(g.Header)
	line(strings.Split(strings.Repeat("---,", len(g.Header)-1)+"---", ","))
	for _, row := range g.Rows {
		line(row)
	}
	return b.String()
}
