package schedule

import (
	"github.com/headway-rl/headway/loop"
)

// watch follows a simulation's events and actions, and adds up what was busy when.
// It counts from the end of the warm-up.
type watch struct {
	inFlight bool // engines generate while a sync runs
	// from and to are the versions at which the window begins and ends.
	from, to        loop.Version
	now, start, end int64
	measuring       bool

	active   int // rollouts in slots
	syncing  int // engines that load or switch
	training bool

	// Nanoseconds in which engines generated, a train step ran, a sync ran, any of them,
	// and a sync beside one of the others; slotNS sums over slots.
	generating, trained, synced, union, syncBeside, slotNS int64

	sampledTokens, wastedTokens int64
	tokens                      map[loop.GroupID]int64 // of live groups
	gantt                       gantt
	works                       works
}

func newWatch(a Arm, warmup, batches int) *watch {
	w := &watch{inFlight: a.Rules.Sync == loop.SyncInFlight, from: loop.Version(warmup * a.Pieces), to: loop.Version((warmup + batches) * a.Pieces), tokens: map[loop.GroupID]int64{}}
	w.works.groups = map[loop.GroupID]*workGroup{}
	w.gantt.from = w.to - loop.Version(min(ganttBatches, batches)*a.Pieces)
	w.gantt.on = w.gantt.from == 0
	return w
}

// advance adds the time until now to what was busy in it.
func (w *watch) advance(now int64) {
	dt := now - w.now
	w.now = now
	if dt <= 0 || !w.measuring {
		return
	}
	// Engines that stand still for a sync hold rollouts and make nothing.
	still := w.syncing > 0 && !w.inFlight
	generating := w.active > 0 && !still
	w.slotNS += dt * int64(w.active)
	if generating {
		w.generating += dt
	}
	if w.training {
		w.trained += dt
	}
	if w.syncing > 0 {
		w.synced += dt
	}
	if generating || w.training || w.syncing > 0 {
		w.union += dt
	}
	if w.syncing > 0 && (generating || w.training) {
		w.syncBeside += dt
	}
}

// observe is called by the simulation for every event.
func (w *watch) observe(ev loop.Event, _, _ int64, actions []loop.Action) {
	w.advance(ev.Time)
	switch ev.Kind {
	case loop.RolloutScored:
		w.active--
		w.tokens[ev.Group] += int64(ev.Tokens)
		if w.measuring {
			w.sampledTokens += int64(ev.Tokens)
		}
	case loop.RolloutFailed, loop.RolloutAborted, loop.RolloutInterrupted:
		w.active--
	case loop.TrainStepEnded:
		w.training = false
		w.gantt.on = w.gantt.on || ev.Version == w.gantt.from
	case loop.WeightsLoaded, loop.WeightsSwitched:
		w.syncing--
	}
	w.works.event(&ev, w.gantt.on)
	for i := range actions {
		w.works.action(&actions[i], ev.Time, w.gantt.on)
		w.act(&actions[i])
	}
	switch {
	case ev.Kind == loop.TrainStepEnded && ev.Version == w.from, ev.Kind == loop.RunStarted && w.from == 0:
		w.measuring, w.start = true, ev.Time
	case ev.Kind == loop.TrainStepEnded && ev.Version == w.to:
		w.measuring, w.end = false, ev.Time
	}
	w.gantt.note(w)
}

// act follows what was decided.
func (w *watch) act(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		w.active++
	case loop.StartTrainStep:
		w.training = true
	case loop.LoadWeights, loop.SwitchWeights:
		w.syncing++
	case loop.GroupTrained:
		delete(w.tokens, a.Group)
	case loop.GroupEnded:
		if w.measuring {
			w.wastedTokens += w.tokens[a.Group]
		}
		delete(w.tokens, a.Group)
	}
}

// ganttBatches is how many batches at the end of the window are drawn.
const ganttBatches = 3

// gantt records what was busy over the last batches.
type gantt struct {
	from    loop.Version
	on      bool
	changes []change
}

// change is what was busy from an instant on.
type change struct {
	at       int64
	active   int
	training bool
	syncing  bool
}

// note keeps the state after an event.
func (g *gantt) note(w *watch) {
	if !g.on {
		return
	}
	c := change{w.now, w.active, w.training, w.syncing > 0}
	if n := len(g.changes); n > 0 && g.changes[n-1].at == w.now {
		g.changes[n-1] = c
		return
	}
	g.changes = append(g.changes, c)
}

// Gantt is what was busy over the last batches of a simulation, in cells of equal time.
type Gantt struct {
	// CellS is the time of one cell and Cells their number.
	CellS float64 `json:"cell_s"`
	Cells int     `json:"cells"`
	// Engines is the share of slots that held a rollout. Trainer and Sync are the
	// shares of the cell's time in which a train step or a weight sync ran.
	Engines []float64 `json:"engines"`
	Trainer []float64 `json:"trainer"`
	Sync    []float64 `json:"sync"`
}

// drawn cuts the record into cells.
func (g *gantt) drawn(slots, cells int) Gantt {
	out := Gantt{Cells: cells, Engines: make([]float64, cells), Trainer: make([]float64, cells), Sync: make([]float64, cells)}
	if len(g.changes) < 2 {
		return out
	}
	first, last := g.changes[0].at, g.changes[len(g.changes)-1].at
	width := float64(last-first) / float64(cells)
	out.CellS = width / 1e9
	for i, c := range g.changes[:len(g.changes)-1] {
		a, b := float64(c.at-first)/width, float64(g.changes[i+1].at-first)/width
		for k := int(a); k < cells && float64(k) < b; k++ {
			part := min(b, float64(k+1)) - max(a, float64(k))
			if part <= 0 {
				continue
			}
			out.Engines[k] += part * float64(c.active) / float64(slots)
			if c.training {
				out.Trainer[k] += part
			}
			if c.syncing {
				out.Sync[k] += part
			}
		}
	}
	return out
}
