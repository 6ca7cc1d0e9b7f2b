package study

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/report"
)

// AttributionOptions say how much of the study of attribution is made.
type AttributionOptions struct {
	// Runs is how many random runs there are, Steps how many train steps of each are measured. First
	// is the seed of the first run; the others follow it.
	Runs, Steps int
	First       uint64
}

// Attribution holds what the named dominant source is worth: random simulated runs, each simulated
// again without each of its sources.
type Attribution struct {
	Runs []Removal `json:"runs"`
	// Agrees counts runs in which removing the named source lowers staleness most. Ties counts those
	// in which it comes within 5 % of that, by removal or by attribution, Differs the others.
	Agrees  int `json:"agrees"`
	Ties    int `json:"ties"`
	Differs int `json:"differs"`
}

// Share is that of the runs in which the named source is the right one, ties included.
func (a Attribution) Share() float64 {
	return float64(a.Agrees+a.Ties) / float64(max(len(a.Runs), 1))
}

// RunAttribution makes the study on all cores. It ends early with the context's error, or that of the
// first run in order that cannot be simulated.
func RunAttribution(ctx context.Context, o AttributionOptions, progress func(done, all int)) (Attribution, error) {
	runs, err := inParallel(ctx, o.Runs, progress, func(i int) (Removal, error) {
		return DrawRemoval(o.First+uint64(i), o.Steps).Run()
	})
	a := Attribution{Runs: runs}
	for _, r := range runs {
		switch r.Verdict {
		case verdictAgrees:
			a.Agrees++
		case verdictTie:
			a.Ties++
		default:
			a.Differs++
		}
	}
	return a, err
}

// AttributionMarkdown prints the study: the counts, the average worth of each source, and every run
// in which the named source is not the right one.
func AttributionMarkdown(w io.Writer, a Attribution, from Provenance) error {
	var b strings.Builder
	b.WriteString("# The named source of staleness against removing it\n\n" + from.line() + "\n\n")
	fmt.Fprintf(&b, "%d random simulated runs, each simulated again without each source of its staleness, the rest held. In %d the source that the attribution names is the one whose removal lowers staleness most; in %d more the two tie within 5 %%; in %d they differ: %s right.\n\n",
		len(a.Runs), a.Agrees, a.Ties, a.Differs, report.Share(a.Share()))
	b.WriteString("Mean over the runs, in versions:\n\n| source | attributed | lowered by removal | named in | removal is largest in |\n|---|---|---|---|---|\n")
	for s := range attribution.Sources {
		part, lowers, named, most := 0.0, 0.0, 0, 0
		for _, r := range a.Runs {
			part += r.Attribution.Parts[s].Versions / float64(len(a.Runs))
			lowers += r.Lowers[s] / float64(len(a.Runs))
			if r.Attribution.Dominant == s.String() {
				named++
			}
			if r.Most == s.String() {
				most++
			}
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %d | %d |\n", s, part, lowers, named, most)
	}
	if a.Differs > 0 {
		b.WriteString("\nWhere they differ (attributed / lowered by removal):\n\n| run | named | removal | staleness | parts |\n|---|---|---|---|---|\n")
	}
	for _, r := range a.Runs {
		if r.Verdict == verdictDiffers {
			fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %s |\n", r.Case, r.Attribution.Dominant, r.Most, r.Attribution.StalenessMean, r.parts())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// parts are what each source adds, and by how much its removal lowers staleness.
func (r Removal) parts() string {
	var parts []string
	for s := range attribution.Sources {
		parts = append(parts, fmt.Sprintf("%s %.2f/%.2f", s, r.Attribution.Parts[s].Versions, r.Lowers[s]))
	}
	return strings.Join(parts, ", ")
}
