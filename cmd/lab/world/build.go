package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/world/doctored"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/internal/failure"
)

// limits are the flags about running worlds that every command has.
type limits struct {
	Limit time.Duration `placeholder:"TIME" help:"How long one world may take before it counts as hanging: 60s, or 10m with --race."`
	Jobs  int           `placeholder:"N" help:"How many worlds run side by side: as many as there are cores, unless given."`
}

// jobs is how many worlds run side by side.
func (l limits) jobs() int {
	if l.Jobs > 0 {
		return l.Jobs
	}
	return runtime.NumCPU()
}

// building are the flags that say which program runs the worlds.
type building struct {
	Race     bool   `help:"Build the world's program with the race detector."`
	Doctored string `placeholder:"NAME" help:"Build it with this bug: a name from the command doctored, or its number."`
	Program  string `type:"existingfile" placeholder:"FILE" help:"Run this program instead of building one."`
}

// open makes the program ready.
func (b building) open(ctx context.Context, a *app.Process, l limits) (*program.Program, error) {
	p, err := b.program(ctx, a)
	if err == nil && l.Limit > 0 {
		p.Limit = l.Limit
	}
	return p, err
}

func (b building) program(ctx context.Context, a *app.Process) (*program.Program, error) {
	if b.Program != "" {
		if b.Doctored != "" {
			return nil, failure.Usage("leave out one of them", "--program runs a program as it is, and --doctored builds one")
		}
		return program.Open(b.Program, b.Race)
	}
	root, err := program.Root(ctx)
	if err != nil {
		return nil, failure.Usage("", "%w", err)
	}
	options := program.Options{Root: root, Race: b.Race}
	if b.Doctored != "" {
		found, err := bugs([]string{b.Doctored})
		if err != nil {
			return nil, err
		}
		options.Doctored = &found[0]
	}
	return built(ctx, a, options)
}

// built builds the world's program; a line on standard error says so where it takes long.
func built(ctx context.Context, a *app.Process, options program.Options) (*program.Program, error) {
	what := "building the world's program"
	if options.Doctored != nil {
		what += " with " + options.Doctored.Name
	}
	defer command.Working(a, what)()
	return program.Build(ctx, options)
}

// bugs are the doctored builds of these names, or all. A name's number is enough.
func bugs(wanted []string) ([]doctored.Build, error) {
	all, err := doctored.All()
	if err != nil || len(wanted) == 0 {
		return all, err
	}
	var found []doctored.Build
	for _, name := range wanted {
		i := slices.IndexFunc(all, func(b doctored.Build) bool {
			number, words, _ := strings.Cut(b.Name, "-")
			return name == b.Name || name == words || strings.TrimLeft(name, "0") == strings.TrimLeft(number, "0")
		})
		if i < 0 {
			return nil, failure.Usage(fmt.Sprintf("cmd/lab/world/doctored has %d patches, from %s to %s", len(all), all[0].Name, all[len(all)-1].Name), "there is no doctored build %q", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}
