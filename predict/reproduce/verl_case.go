package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// verlTolerance is within what share of the published step time a prediction
// counts as right.
const verlTolerance = 0.2

// verl is the published speeds of verl's modes, predicted from one colocated row of
// each experiment.
func verl(ctx context.Context, o Options) (Case, error) {
	rows, table, err := readVerl()
	if err != nil {
		return Case{}, err
	}
	c := Case{Title: "Step times of verl's modes, predicted from a colocated row", Source: table.source, Setup: verlSetup()}
	var jobs []verlJob
	for _, f := range verlFamilies {
		by, err := fit(rows[f.name][0], verlCentral)
		if err != nil {
			return c, err
		}
		c.Setup = append(c.Setup, by.sentence())
		for _, r := range rows[f.name] {
			jobs = append(jobs, verlJob{by, r})
		}
	}
	runs, err := o.simulateVerl(ctx, "verl", jobs)
	if err != nil {
		return c, err
	}
	for _, seeds := range runs {
		c.Quantities = append(c.Quantities, verlQuantities(rows, seeds)...)
	}
	c.Checks = verlChecks(rows)
	c.Grids = append(c.Grids, verlHours(rows), verlSpeedups(rows, runs), verlWork(rows, runs))
	all, err := o.verlOneRow(ctx, rows)
	if err != nil {
		return c, err
	}
	scan, err := o.verlScan(ctx, rows)
	if err != nil {
		return c, err
	}
	c.Grids = append(c.Grids, all, scan.grid())
	c.Findings = verlFindings(rows, runs, scan)
	c.Figures = append(c.Figures, verlFigure(runs))
	return c, nil
}

// verlSetup are the assumptions that every family shares.
func verlSetup() []string {
	a := verlCentral
	return []string{
		"Input of each experiment: its one colocated row (step, gen, old_log_prob, update_actor), and the settings of the documentation and the scripts beside it: model, GPUs, split, length cap, prompts a step, prompts an optimizer step, rollouts a prompt, tensor and sequence parallel sizes. Compared: the rows with rollouts and training apart. None of their figures goes in.",
		"A step is the same batch everywhere: between two weight syncs trigger_parameter_sync_step × require_batches × ppo_mini_batch_size prompts are trained, which the runs set to the colocated train_batch_size. The modes are settings of the loop: policy threshold with the printed staleness_threshold, that batch in trigger_parameter_sync_step train steps; partial rollouts are interrupted at the sync and resumed with a cache filled anew.",
		fmt.Sprintf("Assumed, for want of a printed figure: an update reaches an MFU of %g with activation checkpointing on (8 FLOP a parameter and token), which gives the mean length; prompts of %g tokens; lengths are lognormal and independent, with the least spread that brings the longest of a batch to the cap in half of the batches.", a.mfu, a.promptTokens),
		"A forward pass of the batch is a quarter of the update's passes and all of old_log_prob's; what is equal beside the passes in both is their fixed part. Published: the 7B runs move the trainer's state between host and device where GPUs are shared (actor.fsdp_config.param_offload and optimizer_offload are True in verl's recipe/fully_async_policy/exp/qwen2-7B-math_128/fsdp2_colocate/dapo_7b_math_fsdp2_colocate.sh) and not where they are apart (False in verl/experimental/fully_async_policy/shell/dapo_7b_math_fsdp2_64_64.sh, and in dapo_7b_async_retool.sh beside it); the 30B ones do in both (megatron.param_offload, grad_offload, optimizer_offload True in grpo_30b_a3b_base_math_megatron_96_32.sh). Assumed, and timed by nobody: that this is all of the fixed part, so that it goes where they do not offload.",
		"An optimizer step waits for the data-parallel rank with the most tokens: the expected largest of the ranks' sums over the mean, by seeded draws. Published: verl balances the tokens of a whole batch over the ranks (trainer.balance_batch is True in verl/trainer/config/ppo_trainer.yaml, which no script changes). Assumed, and printed by nobody: that a rank's share is then cut into optimizer steps as if at random, so that they are uneven, and less so on fewer ranks.",
		"An engine's decode step is the roofline of the model on H20 and an overhead with which the colocated barrier takes the published gen. Colocated engines start the whole batch at once; apart, verl's rollouter keeps 16 prompts an engine in flight and replaces a prompt when all its rollouts are done.",
		fmt.Sprintf("What a colocated step takes beyond its timers (scoring, advantages, transfers) stays on the trainer's path; a sync takes %g s, the time published for this model without the checkpoint engine.", a.syncS),
	}
}

// sentence says what a calibration came to.
func (c fitted) sentence() string {
	text := fmt.Sprintf("%s, from its colocated row: mean length %.0f tokens, tailness %.0f, %.1f s a forward pass on %d GPUs, %.1f s fixed, %.1f s beyond the timers, optimizer steps %.2f times their even share, %.1f ms of overhead a decode step (%.1f ms with one rollout, %.1f with %d).",
		c.row.family.title, c.lengths.Mean(), c.tailness, c.passS, c.row.train, c.fixedS, c.restS, c.slowdown(c.row.train),
		1e3*c.overheadS, 1e3*c.decode.StepS(1), 1e3*c.decode.StepS(verlPromptsPerEngine*verlGroup), verlPromptsPerEngine*verlGroup)
	if c.row.family.note != "" {
		text += " Note: " + c.row.family.note + "."
	}
	return text
}

// verlQuantities are the comparisons of one row.
func verlQuantities(rows map[string][]verlRow, seeds []verlRun) []Quantity {
	r := seeds[0].row
	base := rows[r.family.name][0]
	basis := ""
	if r.mode == base.mode {
		basis = "the row that the calibration takes: no prediction"
	}
	quantity := func(name string, measured, closed theory.Figure, of func(verlRun) float64) Quantity {
		return Quantity{Row: r.name(), Name: name, Measured: measured, Closed: closed, Simulated: over(seeds, of), Basis: basis, Decimals: 1}
	}
	list := []Quantity{
		quantity("step_s", theory.Known(r.stepS), theory.Known(seeds[0].closedS), func(v verlRun) float64 { return v.stepS }),
		quantity("wait_for_rollouts_s", theory.Known(r.genS), theory.Figure{}, func(v verlRun) float64 { return v.waitS }),
		quantity("update_actor_s", theory.Known(r.updateS), theory.Figure{}, func(v verlRun) float64 { return v.updateS }),
	}
	if r.mode != base.mode {
		q := quantity("speedup", theory.Known(base.stepS/r.stepS), theory.Known(base.stepS/seeds[0].closedS), func(v verlRun) float64 { return base.stepS / v.stepS })
		q.Decimals = 2
		list = append(list, q)
	}
	return list
}

// verlChecks add the printed parts up: a step cannot be shorter than what it holds.
func verlChecks(rows map[string][]verlRow) []Check {
	var checks []Check
	for _, f := range verlFamilies {
		for _, r := range rows[f.name] {
			sum := r.genS + r.logProbS.Or(0) + r.refS.Or(0) + r.updateS
			if sum > r.stepS {
				checks = append(checks, Check{Row: r.name(), Name: "step_s", How: "gen + log-probs + update_actor, which a step contains", Printed: r.stepS, Redone: sum, Rounding: 0.02})
			}
		}
	}
	return checks
}

// verlHours says how a run's steps grew, from the published hours.
func verlHours(rows map[string][]verlRow) Grid {
	g := Grid{Title: "Seconds a step in each hundred of steps, from the published hours (validation included), beside the published mean",
		Header: []string{"row", "1–100", "101–200", "201–300", "301–400", "last over first", "published mean"}}
	for _, f := range verlFamilies {
		for _, r := range rows[f.name] {
			line := []string{r.name()}
			for _, s := range r.hundreds() {
				line = append(line, s.Format(0))
			}
			for len(line) < 5 {
				line = append(line, "–")
			}
			g.Rows = append(g.Rows, append(line, report.Figure(r.growth(), 2), report.Figure(r.stepS, 1)))
		}
	}
	return g
}

// verlSpeedups sets the speed-up in each hundred of steps beside ours: where lengths
// drift it has no one value.
func verlSpeedups(rows map[string][]verlRow, runs [][]verlRun) Grid {
	g := Grid{Title: "Speed-up over the colocated row in each hundred of steps, from the published hours",
		Header: []string{"row", "1–100", "101–200", "201–300", "301–400", "of the means", "ours"}}
	for _, seeds := range runs {
		r := seeds[0].row
		base := rows[r.family.name][0]
		if r.mode == base.mode {
			continue
		}
		line := []string{r.name()}
		ours, theirs := r.hundreds(), base.hundreds()
		for k := range 4 {
			if k >= len(ours) || k >= len(theirs) {
				line = append(line, "–")
				continue
			}
			line = append(line, report.Figure(theirs[k].Or(math.NaN())/ours[k].Or(math.NaN()), 2))
		}
		mean := over(seeds, func(v verlRun) float64 { return v.stepS }).Mean
		g.Rows = append(g.Rows, append(line, report.Figure(base.stepS/r.stepS, 2), report.Figure(base.stepS/mean, 2)))
	}
	return g
}

// hundreds are the seconds a step in each hundred of steps that has printed hours.
func (r verlRow) hundreds() []theory.Figure {
	var list []theory.Figure
	before := 0.0
	for _, h := range r.hours {
		v, ok := h.Value()
		if !ok {
			break
		}
		list = append(list, theory.Known((v-before)*36))
		before = v
	}
	return list
}

// growth is the last printed hundred over the first.
func (r verlRow) growth() float64 {
	list := r.hundreds()
	return list[len(list)-1].Or(math.NaN()) / list[0].Or(math.NaN())
}

// verlWork sets the trainers' GPU seconds an update side by side.
func verlWork(rows map[string][]verlRow, runs [][]verlRun) Grid {
	g := Grid{Title: "Update of one batch in GPU seconds, over the colocated row's: what the same batch costs the trainer", Header: []string{"row", "published", "ours"}}
	for _, seeds := range runs {
		r := seeds[0].row
		base := rows[r.family.name][0]
		if r.mode == base.mode {
			continue
		}
		of := func(s float64) float64 { return s * float64(r.train) / (base.updateS * float64(base.train)) }
		g.Rows = append(g.Rows, []string{r.name(), report.Figure(of(r.updateS), 2), report.Figure(of(over(seeds, func(v verlRun) float64 { return v.updateS }).Mean), 2)})
	}
	return g
}

// verlResidual is our mean step over the published one, less 1.
func verlResidual(seeds []verlRun) float64 {
	return over(seeds, func(v verlRun) float64 { return v.stepS }).Mean/seeds[0].row.stepS - 1
}

// offBy prints a residual with its sign, in whole per cent.
func offBy(e float64) string { return fmt.Sprintf("%+.0f %%", math.Round(100*e)+0) }

// verlFigure sets predicted against published step times.
func verlFigure(runs [][]verlRun) Figure {
	f := Figure{Name: "verl-steps", Title: "verl: predicted against published step time", Caption: "Every row apart from the calibrated ones; on the line a prediction is right, between the outer lines within 20 %.",
		XLabel: "published, seconds a step", YLabel: "predicted, seconds a step"}
	longest := 0.0
	byFamily := map[string]*Curve{}
	var order []string
	for _, seeds := range runs {
		r := seeds[0].row
		if r.mode == "colocate_sync" {
			continue
		}
		curve := byFamily[r.family.title]
		if curve == nil {
			curve = &Curve{Name: r.family.title, Points: true}
			byFamily[r.family.title] = curve
			order = append(order, r.family.title)
		}
		i := over(seeds, func(v verlRun) float64 { return v.stepS })
		curve.X, curve.Y = append(curve.X, r.stepS), append(curve.Y, i.Mean)
		curve.Low, curve.High = append(curve.Low, i.Low), append(curve.High, i.High)
		longest = max(longest, r.stepS, i.Mean)
	}
	for _, k := range []struct {
		name  string
		slope float64
	}{{"published", 1}, {"20 % more", 1 + verlTolerance}, {"20 % less", 1 - verlTolerance}} {
		f.Curves = append(f.Curves, Curve{Name: k.name, X: []float64{0, longest}, Y: []float64{0, k.slope * longest}})
	}
	for _, name := range order {
		f.Curves = append(f.Curves, *byFamily[name])
	}
	return f
}

// verlFindings say what the comparison shows.
func verlFindings(rows map[string][]verlRow, runs [][]verlRun, scan verlScanned) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	target := verlFamilies[0].name
	var inside, outside, further, missed []string
	worst := 0.0
	for _, seeds := range runs {
		r := seeds[0].row
		if r.mode == "colocate_sync" {
			continue
		}
		e := verlResidual(seeds)
		text := fmt.Sprintf("%s (%s)", r.name(), offBy(e))
		if r.family.name == target {
			text = strings.TrimPrefix(text, r.family.title+": ")
		}
		near := math.Abs(e) <= verlTolerance
		switch {
		case r.family.name == target && r.mode != "require_batches" && near:
			inside, worst = append(inside, text), max(worst, math.Abs(e))
		case r.family.name == target && r.mode != "require_batches":
			outside = append(outside, text)
		case near:
			further = append(further, text)
		default:
			missed = append(missed, text)
		}
	}
	add("From the one colocated row of 128 GPUs, and what is assumed above, %d of %d asynchronous modes are predicted within %s of the published step (worst %s): %s.", len(inside), len(inside)+len(outside), report.Share(verlTolerance), report.Share(worst), listed(inside))
	if len(outside) > 0 {
		add("Outside: %s.", strings.Join(outside, "; "))
	}
	out = append(out, scan.findings()...)
	add("%s", verlOrder(runs, target))
	add("Of the further rows, each from the colocated row of its own experiment, within %s: %s. Outside: %s.", report.Share(verlTolerance), listed(further), listed(missed))
	return append(out, verlUnexplained(rows, runs)...)
}

// listed joins what may be nothing.
func listed(texts []string) string {
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, "; ")
}

// verlOrder says whether the modes' speed-ups have the published order.
func verlOrder(runs [][]verlRun, family string) string {
	type mode struct {
		name            string
		published, ours float64
	}
	var modes []mode
	for _, seeds := range runs {
		if r := seeds[0].row; r.family.name == family && r.mode != "require_batches" {
			modes = append(modes, mode{strings.TrimPrefix(r.name(), r.family.title+": "), r.stepS, over(seeds, func(v verlRun) float64 { return v.stepS }).Mean})
		}
	}
	wrong := 0
	var pairs []string
	for i, a := range modes {
		for _, b := range modes[i+1:] {
			// Published steps that differ by less than a twentieth have no order: the source calls them close.
			if math.Abs(a.published/b.published-1) < 0.05 {
				continue
			}
			if (a.published-b.published)*(a.ours-b.ours) <= 0 {
				wrong++
				pairs = append(pairs, a.name+" and "+b.name)
			}
		}
	}
	slices.SortFunc(modes, func(a, b mode) int { return int(math.Copysign(1, b.ours-a.ours)) })
	var names []string
	for _, m := range modes {
		names = append(names, fmt.Sprintf("%s %.0f s (published %.0f)", m.name, m.ours, m.published))
	}
	if wrong == 0 {
		return "The order of the speed-ups is the published one, published steps within 5 % of each other counting as equal: " + strings.Join(names, ", ") + "."
	}
	return fmt.Sprintf("The order of the speed-ups is wrong for %s: %s.", strings.Join(pairs, ", "), strings.Join(names, ", "))
}
