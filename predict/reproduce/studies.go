package reproduce

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// errNoSimulator is the error of a case that simulates documents, without a simulator.
var errNoSimulator = errors.New("reproduce: Options.Simulation is missing, and this case simulates a document")

// readDocument reads one of the embedded documents, with every default filled in.
func readDocument(name string) (config.Config, error) {
	text, err := cases.ReadFile(path.Join("cases", name+".yaml"))
	if err != nil {
		return config.Config{}, err
	}
	d, err := config.Parse("predict/reproduce/cases/"+name+".yaml", text)
	if err != nil {
		return d, err
	}
	return d.Resolve()
}

// sized is the document with so many slots, spread evenly over its engines.
func sized(d config.Config, slots int) config.Config {
	d.Rollout.Concurrency = slots
	engines := make([]config.Engine, len(d.Engines))
	for i, e := range d.Engines {
		e.Slots = slots / len(engines)
		if i < slots%len(engines) {
			e.Slots++
		}
		engines[i] = e
	}
	d.Engines = engines
	return d
}

// observed is one simulation of a document, with the most rollouts that stood
// interrupted between each step's end and the next.
type observed struct {
	sim.Result
	// buffered[v] is that after step v, from 0; 0 where none was interrupted then.
	buffered []int
}

// simulateDocuments simulates documents on all cores, in order.
func (o Options) simulateDocuments(ctx context.Context, name string, documents []config.Config) ([]observed, error) {
	if o.Simulation == nil {
		return nil, errNoSimulator
	}
	return inParallel(ctx, len(documents), func(i int) (observed, error) {
		cfg, err := o.Simulation(documents[i])
		if err != nil {
			return observed{}, err
		}
		var b buffer
		cfg.Observe = b.observe
		result, err := sim.Run(cfg)
		return observed{result, b.most}, err
	}, func(done int) {
		if o.Said != nil {
			o.Said(name, done, len(documents))
		}
	})
}

// buffer counts interrupted rollouts.
type buffer struct {
	now  int
	most []int
}

// observe follows one event and the actions on it.
func (b *buffer) observe(ev loop.Event, _, _ int64, actions []loop.Action) {
	if b.most == nil {
		b.most = []int{0}
	}
	switch ev.Kind {
	case loop.RolloutInterrupted:
		b.now++
		last := len(b.most) - 1
		b.most[last] = max(b.most[last], b.now)
	case loop.TrainStepEnded:
		b.most = append(b.most, 0)
	}
	for i := range actions {
		if actions[i].Kind == loop.ResumeRollout {
			b.now--
		}
	}
}

// studySource is the source of a case study and what was observed in it.
func studySource(name string) (source, setup, seen string, err error) {
	table, err := readTable("case_studies")
	if err != nil {
		return "", "", "", err
	}
	for i := range table.rows {
		if table.text(i, "case") == name {
			return table.source, table.text(i, "setup"), table.text(i, "observed"), nil
		}
	}
	return "", "", "", fmt.Errorf("reproduce: cases/case_studies.csv has no case %q", name)
}

// caseStudy begins a case study: its source, what was stated and what was observed,
// and its document.
func caseStudy(name, title string) (Case, config.Config, error) {
	source, setup, seen, err := studySource(name)
	if err != nil {
		return Case{}, config.Config{}, err
	}
	d, err := readDocument(name)
	return Case{Title: title, Source: source, Setup: []string{"Stated: " + setup + ".", "Observed: " + seen + "."}}, d, err
}

// studySeeds are the seeds of a case study.
func (o Options) studySeeds() int {
	if o.Quick {
		return 2
	}
	return 5
}

// slimeSteps are those the observation shows; slimeSeeds how many such runs are simulated,
// since what is seen in one of them is chance.
const (
	slimeSteps = 20
	slimeSeeds = 20
)

// slimeStudy is partial rollout whose buffer fills at weight updates.
func slimeStudy(ctx context.Context, o Options) (Case, error) {
	const name = "slime_swe"
	c, d, err := caseStudy(name, "Partial rollout: what fills the buffer")
	if err != nil {
		return Case{}, err
	}
	c.Setup = append(c.Setup,
		"Simulated: predict/reproduce/cases/slime_swe.yaml, in which every line says whether it was stated or is assumed; `headway simulate` reads it. Not stated, and assumed: how many rollouts run at once, the GPU, the MFU (that of the source's other run of this model), the mean length and the time of a tool call. A batch of 64 is taken as 64 rollouts. The trainer's wait follows from these, above all from the rollouts at once and the time of a call, as the scans show: it is no comparison.",
		"Buffered after a step: the most rollouts that stood interrupted at once as some were interrupted between the step's end and the next step's.",
	)
	var documents []config.Config
	runsAsked := slimeSeeds
	if o.Quick {
		runsAsked = 4
	}
	for seed := range runsAsked {
		d.Seed = uint64(seed + 1)
		documents = append(documents, d)
	}
	runs, err := o.simulateDocuments(ctx, name, documents)
	if err != nil {
		return c, err
	}
	c.Quantities = []Quantity{{Row: "20 steps", Name: "trainer_wait_share", Measured: theory.Known(0.6), Simulated: over(runs, func(r observed) float64 { return idleAfter(r.Series, 1) }),
		Basis: FollowsFromAssumed, Note: "without the first step, which waits for the first rollouts"}}
	c.Findings = slimeFindings(d, runs)
	c.Grids = []Grid{bufferGrid(d.Sync.Every, runs)}
	c.Figures = []Figure{bufferFigure(d.Sync.Every, runs)}
	scan, err := o.slimeScan(ctx, d)
	if err != nil {
		return c, err
	}
	syncs, err := o.slimeSyncScan(ctx, d)
	c.Grids = append(c.Grids, scan, syncs)
	return c, err
}

// idleAfter is the trainer's idle share of time after the first n steps.
func idleAfter(steps []metrics.Step, n int) float64 {
	idle, all := 0.0, 0.0
	for _, s := range steps[min(n, len(steps)):] {
		idle += s.TrainerIdle * float64(s.PeriodNS)
		all += float64(s.PeriodNS)
	}
	return idle / max(all, 1)
}

// bufferGrid is what was buffered after every step, by seed: the first runs, and others
// with a spike that no weight update explains.
func bufferGrid(every int, runs []observed) Grid {
	g := Grid{Title: "Most rollouts buffered after each step: the first runs, and the others with a spike elsewhere than after a weight update", Header: []string{"seed"}}
	for step := 1; step < slimeSteps; step++ {
		g.Header = append(g.Header, fmt.Sprint(step))
	}
	for seed, r := range runs {
		if seed >= 3 && len(r.spikes(every)) == 0 {
			continue
		}
		row := []string{fmt.Sprint(seed + 1)}
		for step := 1; step < slimeSteps; step++ {
			row = append(row, fmt.Sprint(r.buffered[step]))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// spikes are the steps after which rollouts were interrupted though no weight update
// was due.
func (r observed) spikes(every int) []int {
	var steps []int
	for step := 1; step < slimeSteps-1; step++ {
		if step%every != 0 && r.buffered[step] > 0 {
			steps = append(steps, step)
		}
	}
	return steps
}

// bufferFigure draws it for the first run and up to three others with spikes.
func bufferFigure(every int, runs []observed) Figure {
	f := Figure{Name: "slime-buffer", Title: "Partial rollouts buffered after each step", XLabel: "train step", YLabel: "rollouts that stand interrupted, at most",
		Caption: "Every weight update, after steps 5, 10 and 15, interrupts all that runs; so does a batch that is full while the trainer is still busy, at other steps.", Bars: true}
	for seed, r := range runs {
		if len(f.Curves) == 4 || seed > 0 && len(r.spikes(every)) == 0 {
			continue
		}
		curve := Curve{Name: fmt.Sprintf("seed %d", seed+1)}
		for step := range slimeSteps {
			curve.X, curve.Y = append(curve.X, float64(step)), append(curve.Y, float64(r.buffered[step]))
		}
		f.Curves = append(f.Curves, curve)
	}
	return f
}

// slimeFindings compare with what was observed.
func slimeFindings(d config.Config, runs []observed) []string {
	slots, every := d.Rollout.Concurrency, d.Sync.Every
	updates, risen, spikes, early, soon := 0, 0, 0, 0, 0
	for _, r := range runs {
		for step := every; step < slimeSteps; step += every {
			updates++
			if 2*r.buffered[step] > slots {
				risen++
			}
		}
		for _, step := range r.spikes(every) {
			spikes++
			if step%every <= 2 {
				soon++
			}
			// The batch was there before the running step ended: the one after it waited for nothing.
			if step+1 < len(r.Series) && r.Series[step+1].TrainerIdle < 0.01 {
				early++
			}
		}
	}
	return []string{
		fmt.Sprintf("Weight updates: in %d of %d the buffer rises to more than half of the %d rollouts in flight, after steps 5, 10 and 15, as observed.", risen, updates, slots),
		fmt.Sprintf("Spikes elsewhere: %d in %d runs of %d steps. In %d of them the next batch was full while the trainer was still busy, so that everything else was interrupted and the step after it waited for nothing: its target had been reached at once, as in the observation. %d of them come one or two steps after an update or the start, as those after steps 7 and 17 do and half would if they came anywhere. Whether it happens is chance: a batch is %d groups, and the time they take varies.",
			spikes, len(runs), slimeSteps, early, soon, d.Train.Batch/d.Rollout.GroupSize),
		"Two spikes were observed in one run. At the observed wait that is rarer here; the scan has two a run and more only where the trainer waits less than half of the time. How long an update takes hardly changes that.",
		"The wait depends on what is not stated, and could come out anywhere in the scan: that it lies near the observed share says that the document's values are possible, and no more. Where the buffer fills does not depend on them.",
	}
}

// slimeScan varies what the wait depends on and is not stated.
func (o Options) slimeScan(ctx context.Context, d config.Config) (Grid, error) {
	slots, tools := []int{128, 256, 384, 512}, []float64{15, 30, 60}
	if o.Quick {
		slots, tools = []int{256}, []float64{30}
	}
	g := Grid{Title: "Trainer's wait, and spikes a run, by what is not stated (observed: 60 %, and two in one run)", Header: []string{"rollouts at once"}}
	var documents []config.Config
	for _, t := range tools {
		g.Header = append(g.Header, fmt.Sprintf("a call takes %g s", t))
	}
	seeds := 2 * o.studySeeds()
	for _, n := range slots {
		for _, t := range tools {
			at := sized(d, n)
			at.Modelled.Tools.Time.MeanS = t
			for seed := range seeds {
				at.Seed = uint64(seed + 1)
				documents = append(documents, at)
			}
		}
	}
	runs, err := o.simulateDocuments(ctx, "slime_swe: scan", documents)
	if err != nil {
		return g, err
	}
	for i, n := range slots {
		row := []string{fmt.Sprint(n)}
		for k := range tools {
			at := (i*len(tools) + k) * seeds
			row = append(row, slimeCell(runs[at:at+seeds], d.Sync.Every))
		}
		g.Rows = append(g.Rows, row)
	}
	return g, nil
}

// slimeCell is the trainer's wait, and spikes a run, over the seeds.
func slimeCell(runs []observed, every int) string {
	wait := over(runs, func(r observed) float64 { return idleAfter(r.Series, 1) }).Mean
	spikes := over(runs, func(r observed) float64 { return float64(len(r.spikes(every))) }).Mean
	return report.Share(wait) + ", " + report.Figure(spikes, 1)
}

// slimeSyncScan varies how long a weight update takes, and whether some prompts take
// longer than others.
func (o Options) slimeSyncScan(ctx context.Context, d config.Config) (Grid, error) {
	syncs, sigmas := []float64{5, 20, 60, 120}, []float64{0, 0.4, 0.8}
	if o.Quick {
		syncs, sigmas = []float64{20, 60}, []float64{0}
	}
	g := Grid{Title: "The same, by how long a weight update takes and how much prompts differ in length (the σ of a prompt's own logarithm)", Header: []string{"update takes"}}
	for _, sigma := range sigmas {
		g.Header = append(g.Header, fmt.Sprintf("σ %g", sigma))
	}
	seeds := 2 * o.studySeeds()
	var documents []config.Config
	for _, s := range syncs {
		for _, sigma := range sigmas {
			at := d
			at.Modelled.Sync.TimeS, at.Modelled.Length.PromptSigma = s, sigma
			for seed := range seeds {
				at.Seed = uint64(seed + 1)
				documents = append(documents, at)
			}
		}
	}
	runs, err := o.simulateDocuments(ctx, "slime_swe: updates", documents)
	if err != nil {
		return g, err
	}
	for i, s := range syncs {
		row := []string{fmt.Sprintf("%g s", s)}
		for k := range sigmas {
			at := (i*len(sigmas) + k) * seeds
			row = append(row, slimeCell(runs[at:at+seeds], d.Sync.Every))
		}
		g.Rows = append(g.Rows, row)
	}
	return g, nil
}
