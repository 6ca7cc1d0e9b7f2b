package experiment

import (
	"fmt"
	"runtime"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/report"
)

// When a grid is measured and asked about before it starts.
const (
	// forecastMin is how many simulations are started without measuring some first.
	forecastMin = 200
	// forecastTries and forecastTime bound the measurement.
	forecastTries = 9
	forecastTime  = 2 * time.Second
	// askAfter is how long a grid may take without being asked for.
	askAfter = 10 * time.Minute
)

// Long says how long a slow grid takes, from a few of its simulations, spread over
// it; "" for a grid that is not slow. Argument now is the clock.
func (g *Grid) Long(now func() time.Time) string {
	all := g.Simulations()
	if all <= forecastMin {
		return ""
	}
	began := now()
	tried := int64(0)
	for tried < forecastTries && now().Sub(began) < forecastTime {
		// Settings at odd parts of the grid, so that no axis is seen at one end alone.
		g.make(int64(float64(all) * float64(2*((tried*4)%forecastTries)+1) / (2 * forecastTries)))
		tried++
	}
	each := now().Sub(began).Seconds() / float64(tried)
	cores := runtime.GOMAXPROCS(0)
	took := each * float64(all) / float64(cores)
	if took <= askAfter.Seconds() {
		return ""
	}
	return fmt.Sprintf("%s with %s each take about %s on %s: a simulation takes %s, the mean of %d of them",
		report.Counted(g.Settings, "setting"), report.Counted(g.Seeds, "seed"), report.Roughly(took), report.Counted(cores, "core"), report.Briefly(each), tried)
}

// What one simulation takes, roughly: bytes a slot and a train step of the series,
// and rollouts per second on a slow core.
const (
	slotBytes      = 900
	stepBytes      = 150
	slowRollouts   = 2e6
	memoryUnasked  = 4 << 30
	rolloutsOfSlot = 3 // a slot's first rollouts, until the first are trained
)

// Costly says how long a single simulation of a document would take, where that is
// longer than users expect of a command that simulates unasked. Elsewhere it is
// "".
func Costly(d config.Config) string {
	steps := float64(d.Steps.Warmup + d.Steps.Measured)
	slots := float64(d.Rollout.Concurrency)
	if bytes := slots*slotBytes + steps*stepBytes; bytes > memoryUnasked {
		return fmt.Sprintf("rollout.concurrency %d over %s train steps takes about %.0f GB of memory", d.Rollout.Concurrency, report.Count(int64(steps)), bytes/1e9)
	}
	if s := (rolloutsOfSlot*slots + steps*float64(d.Train.Batch)) / slowRollouts; s > askAfter.Seconds() {
		return fmt.Sprintf("%s train steps of %d rollouts take about %s", report.Count(int64(steps)), d.Train.Batch, report.Roughly(s))
	}
	return ""
}
