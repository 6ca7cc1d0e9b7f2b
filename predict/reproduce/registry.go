package reproduce

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// entry is one case by its name.
type entry struct {
	name string
	// what it is, in a line of the command's help.
	what string
	run  func(ctx context.Context, o Options) (Case, error)
}

// registry are all cases, in the order in which they are printed.
var registry = []entry{
	{"validation_runs", "staleness of four live runs beside the closed form", validationRuns},
	{"batch_size", "the batch as a lever: staleness, step time and its noise-adjusted forms", batchSize},
	{"queue_factor", "a queue of two batches", queueFactor},
	{"tail_subsets", "prompts chosen by length and tail", tailSubsets},
	{"length_bias_tailness50", "lengths trained over lengths sampled, queue-drop and queue-max", lengthBias},
	{"verl", "step times of verl's asynchronous modes, from one colocated row", verl},
	{"throughput_matching", "a trainer that waits for a generator with three quarters of the GPUs", throughputMatching},
	{"slime_swe", "partial rollouts on SWE tasks: the trainer's wait and the buffer after every step", slimeStudy},
	{"verl_uni_agent", "an agent with one sandbox a rollout, 96 to 960 of them", sandboxStudy},
}

// figuresName asks for the pictures that have no published row of their own.
const figuresName = "figures"

// Names are the names of all cases with what they are, in order.
func Names() (names, what []string) {
	for _, e := range registry {
		names, what = append(names, e.name), append(what, e.what)
	}
	return append(names, figuresName), append(what, "pictures of what staleness depends on: utilization, tail, queue, split, batch, concurrency")
}

// studiesName is the table of the case studies, each of which is a case of its own.
const studiesName = "case_studies"

// studiesOf has the table's name stand for its studies.
func studiesOf(names []string) []string {
	var all []string
	for _, name := range names {
		if name == studiesName {
			all = append(all, "slime_swe", "verl_uni_agent")
			continue
		}
		all = append(all, name)
	}
	return all
}

// UnknownCase is the error for a name that is no case's.
type UnknownCase struct {
	// Name as it was given; Known are all there are.
	Name  string
	Known []string
}

// Error names the nearest case, or all of them.
func (e *UnknownCase) Error() string {
	for _, known := range e.Known {
		if len(e.Name) > 2 && strings.HasPrefix(known, e.Name[:3]) {
			return fmt.Sprintf("there is no published case named %q: did you mean %q? headway reproduce --list lists them", e.Name, known)
		}
	}
	return fmt.Sprintf("there is no published case named %q: there are %s", e.Name, strings.Join(e.Known, ", "))
}

// UsageFault marks a mistake of the caller.
func (e *UnknownCase) UsageFault() {}

// Run computes the named cases, in the order of the registry; all without a name.
// Its error is an *UnknownCase, the context's, or that of a case, which it names.
func Run(ctx context.Context, o Options, names ...string) (Result, error) {
	known, _ := Names()
	names = studiesOf(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return Result{}, &UnknownCase{name, known}
		}
	}
	result := Result{Quick: o.Quick, Cases: []Case{}, Figures: []Figure{}}
	if len(names) == 0 || slices.Contains(names, figuresName) {
		drawn, err := figures(ctx, o)
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", figuresName, err)
		}
		result.Figures = drawn
	}
	for _, e := range registry {
		if len(names) > 0 && !slices.Contains(names, e.name) {
			continue
		}
		c, err := e.run(ctx, o)
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", e.name, err)
		}
		c.Name = e.name
		result.Cases = append(result.Cases, c)
	}
	return result, nil
}
