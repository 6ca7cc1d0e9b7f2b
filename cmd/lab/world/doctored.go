package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/world/doctored"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/observe/report"
)

// doctoredCmd measures how strong the check is.
type doctoredCmd struct {
	Names   []string `arg:"" optional:"" name:"name" help:"Names or numbers of builds: all of cmd/lab/world/doctored, unless given."`
	Most    uint64   `name:"seeds-max" default:"2000" placeholder:"N" help:"After how many seeds a build counts as not found."`
	Results string   `placeholder:"FILE" help:"The file that keeps what is known of each build. Without it, there is one for each clean build in the user's cache folder."`
	Again   bool     `help:"Run builds again of which the file has an answer."`
	limits
	command.Output
}

// found is the answer about one build.
type found struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Seed is the first seed that fails with this build alone; 0 for none of Tried.
	Seed  uint64 `json:"seed"`
	Tried uint64 `json:"tried"`
	Rule  string `json:"rule,omitempty"`
	Text  string `json:"text,omitempty"`
	// Both are seeds that fail without the bug as well, so that they find nothing.
	Both []uint64 `json:"both,omitempty"`
	// Harness are seeds on which the harness failed with this build.
	Harness []uint64 `json:"harness,omitempty"`
	// Trouble says why nothing is known: it does not build, or no world of it runs.
	Trouble string `json:"trouble,omitempty"`
	// Program is the sum of the build's program.
	Program string  `json:"program,omitempty"`
	TookS   float64 `json:"took_s"`
}

// settled reports whether the answer stands for a search of so many seeds.
func (f found) settled(most uint64) bool { return f.Trouble == "" && (f.Seed > 0 || f.Tried >= most) }

// doctoredReport is what doctored says with --json.
type doctoredReport struct {
	// Clean is the sum of the program without a bug.
	Clean  string  `json:"clean"`
	Builds []found `json:"builds"`
}

// Run builds the bugs one after another, and runs seeds with each until one fails.
func (c *doctoredCmd) Run(a *app.Process) error {
	ctx, stop := command.Interruptible()
	defer stop()
	wanted, err := bugs(c.Names)
	if err != nil {
		return err
	}
	root, err := program.Root(ctx)
	if err != nil {
		return failure.Usage("", "%w", err)
	}
	clean, err := built(ctx, a, program.Options{Root: root})
	if err != nil {
		return err
	}
	defer clean.Close()
	if c.Limit > 0 {
		clean.Limit = c.Limit
	}
	path, known, err := c.known(clean.Sum)
	if err != nil {
		return err
	}
	var r doctoredReport
	r.Clean = clean.Sum
	for _, b := range wanted {
		i := slices.IndexFunc(known.Builds, func(f found) bool { return f.Name == b.Name })
		if i < 0 || c.Again || !known.Builds[i].settled(c.Most) {
			f, err := c.one(ctx, a, root, clean, b)
			if err != nil {
				return err
			}
			if i < 0 {
				i, known.Builds = len(known.Builds), append(known.Builds, f)
			}
			known.Builds[i] = f
			if err := keepDoctored(path, known); err != nil {
				return err
			}
			fmt.Fprintln(a.Stderr, f.line())
		}
		r.Builds = append(r.Builds, known.Builds[i])
	}
	return c.finish(a, r)
}

// known reads what an earlier run has kept about builds beside this clean one.
func (c *doctoredCmd) known(clean string) (string, doctoredReport, error) {
	path := c.Results
	if path == "" {
		cache, err := program.Cache()
		if err != nil {
			return "", doctoredReport{}, err
		}
		path = filepath.Join(cache, "doctored-"+clean[:12]+".json")
	}
	r := doctoredReport{Clean: clean}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return "", r, failure.Usage("name another file, or delete this one", "the results %s cannot be read: %w", path, err)
	}
	if r.Clean != clean {
		return "", r, failure.Usage("name another file", "the results %s are those of another clean build: %.12s, and this one is %.12s", path, r.Clean, clean)
	}
	return path, r, nil
}

func keepDoctored(path string, r doctoredReport) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replace.File(path, append(text, '\n'), 0o644)
}

// one builds a bug and looks for a seed that finds it.
func (c *doctoredCmd) one(ctx context.Context, a *app.Process, root string, clean *program.Program, b doctored.Build) (found, error) {
	began := a.Now()
	f := found{Name: b.Name, Title: b.Title}
	bad, err := built(ctx, a, program.Options{Root: root, Doctored: &b})
	if err == nil {
		defer bad.Close()
		bad.Limit, f.Program = clean.Limit, bad.Sum
		line := command.NewStatusLine(a)
		err = find(ctx, c.jobs(), c.Most, bad.Run, clean.Run, &f, func() {
			if line.Due() {
				line.Show(fmt.Sprintf("%s: %s of %s seeds", b.Name, report.Count(int64(f.Tried)), report.Count(int64(c.Most))))
			}
		})
		line.Clear()
	}
	if ctx.Err() != nil {
		return f, ctx.Err()
	}
	if err != nil {
		f.Trouble = err.Error()
	}
	f.TookS = a.Now().Sub(began).Seconds()
	return f, nil
}

// run runs one world.
type run func(context.Context, program.Job) (program.Result, error)

// find looks for the lowest seed that fails with a bug and not without it. Seeds begin in order, so that all lower ones
// are over when it returns.
func find(ctx context.Context, jobs int, most uint64, bad, clean run, f *found, progress func()) error {
	type answer struct {
		result program.Result
		both   bool
	}
	seeds := soak.Ranges{{1, most}}
	return soak.Each(ctx, seeds.Without(nil), jobs,
		func(ctx context.Context, seed uint64) (x answer, err error) {
			if x.result, err = bad(ctx, program.Job{Seed: seed}); err != nil || x.result.Rule == "" {
				return x, err
			}
			if harness(x.result.Rule) {
				return x, nil
			}
			without, err := clean(ctx, program.Job{Seed: seed})
			x.both = without.Rule != ""
			return x, err
		},
		func(seed uint64, x answer) bool {
			f.Tried++
			switch {
			case x.result.Rule == "":
			case harness(x.result.Rule):
				f.Harness = append(f.Harness, seed)
			case x.both:
				f.Both = append(f.Both, seed)
			case f.Seed == 0 || seed < f.Seed:
				f.Seed, f.Rule, f.Text = seed, x.result.Rule, x.result.Text
			}
			progress()
			return f.Seed == 0
		})
}

// harness reports whether a rule says that nothing is known of the run.
func harness(rule string) bool { return rule == program.Harness || rule == program.Answer }

// line is the answer for people.
func (f found) line() string {
	switch {
	case f.Trouble != "":
		return fmt.Sprintf("%s: NOT KNOWN: %s", f.Name, f.Trouble)
	case f.Seed == 0:
		return fmt.Sprintf("%s: NOT FOUND in %s seeds%s", f.Name, report.Count(int64(f.Tried)), f.aside())
	}
	return fmt.Sprintf("%s: found by seed %d: %s: %s", f.Name, f.Seed, f.Rule, f.Text)
}

// aside says which seeds find nothing although they fail.
func (f found) aside() string {
	text := ""
	if len(f.Both) > 0 {
		text += fmt.Sprintf(", %d of which fail without the bug as well", len(f.Both))
	}
	if len(f.Harness) > 0 {
		text += fmt.Sprintf(", on %d of which the harness failed", len(f.Harness))
	}
	return text
}

// finish prints the table.
func (c *doctoredCmd) finish(a *app.Process, r doctoredReport) error {
	if c.JSON {
		if err := report.JSON(a.Stdout, r); err != nil {
			return err
		}
	} else {
		printDoctored(a.Stdout, r)
	}
	var missing []string
	for _, f := range r.Builds {
		if f.Seed == 0 {
			missing = append(missing, f.Name)
		}
	}
	if len(missing) > 0 {
		return failure.Run("the check is too weak for them, or their faults are too rare", "%d of %s not found within %d seeds: the first is %s", len(missing), report.Counted(len(r.Builds), "build"), c.Most, missing[0])
	}
	return nil
}

func printDoctored(w io.Writer, r doctoredReport) {
	rows := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(rows, "build\tseeds\trule\thow\n")
	rules, until := map[string]int64{}, []uint64{}
	for _, f := range r.Builds {
		seeds, text := fmt.Sprint(f.Seed), f.Text
		switch {
		case f.Trouble != "":
			seeds, text = "not known", f.Trouble
		case f.Seed == 0:
			seeds, text = fmt.Sprintf("over %d", f.Tried), f.Title+f.aside()
		default:
			rules[f.Rule]++
			until = append(until, f.Seed)
		}
		fmt.Fprintf(rows, "%s\t%s\t%s\t%s\n", f.Name, seeds, cmp.Or(f.Rule, "–"), clipped(text, textMax))
	}
	rows.Flush()
	slices.Sort(until)
	fmt.Fprintf(w, "\n%d of %s found", len(until), report.Counted(len(r.Builds), "build"))
	if n := len(until); n > 0 {
		fmt.Fprintf(w, "; half of them within %s, all within %d; by %s", report.Counted(int64(until[(n-1)/2]), "seed"), until[n-1], counts(rules))
	}
	fmt.Fprintln(w)
}

// textMax is how much of a text stands in a table, in characters.
const textMax = 110

// clipped is the first line of a text, or the beginning of it.
func clipped(text string, most int) string {
	for i, r := range []rune(text) {
		if r == '\n' || i == most {
			return string([]rune(text)[:i]) + "…"
		}
	}
	return text
}
