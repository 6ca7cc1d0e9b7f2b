package forecast

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// Read returns the prediction that stands in a run's trace before its first event.
func Read(dir string) (Forecast, error) {
	var p Forecast
	log, err := trace.Open(dir)
	if err != nil {
		return p, err
	}
	defer log.Close()
	reader, err := trace.NewReader(log)
	for err == nil {
		var rec trace.Record
		if rec, err = reader.Next(); err == nil && rec.Note == trace.NotePrediction {
			return p, json.Unmarshal(rec.Data, &p)
		}
		if rec.Event != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return p, err
}

// Probe is what the probe measured of the rates behind a forecast.
type Probe struct {
	// Steps were measured in WindowS seconds, and Rollouts finished.
	Steps    int64   `json:"steps"`
	Rollouts int     `json:"rollouts"`
	WindowS  float64 `json:"window_s"`
	// RolloutsPerS is the production rate, StepS the mean train step.
	RolloutsPerS float64 `json:"rollouts_per_s"`
	StepS        float64 `json:"step_s"`
	// Utilization is ρ, TailMultiplier E[longest of a group]/E[rollout] of durations.
	Utilization    float64 `json:"utilization"`
	TailMultiplier float64 `json:"tail_multiplier"`
}

// Forecast is what is expected of a run before its first step. A probe says it, which is a short run of the same
// document on the same machine. It stands in the trace, with a digest, ahead of every event.
type Forecast struct {
	StalenessMean *float64 `json:"staleness_mean"`
	StalenessP95  *float64 `json:"staleness_p95,omitempty"`
	PQS           *float64 `json:"pqs"`
	IQS           *float64 `json:"iqs"`
	PeriodS       *float64 `json:"period_s"`
	// PeriodSpread is the half-width around PeriodS, as a share of it, within which the run's period is expected.
	PeriodSpread float64 `json:"period_spread,omitempty"`
	// WastedShare is the share of the tokens that are made and never trained.
	WastedShare float64  `json:"wasted_share"`
	Regime      string   `json:"regime"`
	Warnings    []string `json:"warnings,omitempty"`
	Probe       Probe    `json:"probe"`
	// SHA256 of this object with an empty SHA256.
	SHA256 string `json:"sha256"`
}

// UnmarshalJSON reads a forecast from a trace, which an earlier version may have written: there the
// probe is named calibration. SHA256 stays that of the text as it was written.
func (p *Forecast) UnmarshalJSON(text []byte) error {
	type plain Forecast
	read := struct {
		*plain
		Earlier *Probe `json:"calibration"`
	}{plain: (*plain)(p)}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	if read.Earlier != nil {
		p.Probe = *read.Earlier
	}
	return nil
}

// ErrTooShort is wrapped by the error of a probe that saw too few train steps.
var ErrTooShort = errors.New("no prediction: the probe was too short for this run")

// forecastSteps is the least number of train steps that a forecast rests on.
const forecastSteps = 5

// New expects of a run what its probe measured. The periods are those of its measured train steps, in
// seconds and in order. The error wraps [ErrTooShort].
func New(s metrics.Summary, periods []float64) (Forecast, error) {
	if s.Steps < forecastSteps || len(periods) < forecastSteps {
		return Forecast{}, fmt.Errorf("%w: it measured %s, and needs %d", ErrTooShort, report.Counted(int(s.Steps), "train step"), forecastSteps)
	}
	p95 := float64(s.Staleness.P95)
	f := Forecast{
		StalenessMean: &s.Staleness.Mean, StalenessP95: &p95, PQS: &s.PQS.Mean, IQS: &s.IQS.Mean, PeriodS: &s.PeriodS.Mean,
		PeriodSpread: periodSpread(periods), WastedShare: s.Waste.WastedShare, Regime: s.Throughput.Binding + "-bound",
		Probe: Probe{Steps: s.Steps, Rollouts: int(math.Round(s.Throughput.ProductionRolloutsPerS * s.WindowS)), WindowS: s.WindowS,
			RolloutsPerS: s.Throughput.ProductionRolloutsPerS, StepS: s.StepS.Mean, Utilization: s.Utilization, TailMultiplier: s.TailMultiplier},
	}
	text, err := json.Marshal(f)
	if err != nil {
		return f, err
	}
	sum := sha256.Sum256(text)
	f.SHA256 = hex.EncodeToString(sum[:])
	return f, nil
}

// String says what is expected in a line of at most 80 columns, "" for nothing.
func (p Forecast) String() string {
	if p.StalenessMean == nil || p.PeriodS == nil {
		return ""
	}
	line := fmt.Sprintf("predicted: staleness %.2f", *p.StalenessMean)
	if p.StalenessP95 != nil {
		line += fmt.Sprintf(" (p95 %g)", *p.StalenessP95)
	}
	line += ", train period " + report.Period(*p.PeriodS)
	if p.PeriodSpread > 0 {
		line += fmt.Sprintf(" ± %.0f %%", 100*p.PeriodSpread)
	}
	return line + ", wasted " + report.Share(p.WastedShare)
}

// The stated spread is never below what a quiet machine does by itself, nor above what is worth stating.
const (
	spreadMin    = 0.10
	spreadMax    = 0.25
	spreadBlocks = 8
	// spreadFactor is Student's 97.5 % quantile at spreadBlocks-1 degrees of freedom, times the error of the mean of
	// spreadBlocks blocks and of a run several times as long.
	spreadFactor = 2.365 * 0.40
)

// periodSpread is how far the mean of a run's periods may be from that of its probe, as a share, by how much the means
// of blocks of steps differ.
func periodSpread(periods []float64) float64 {
	n := len(periods) / spreadBlocks
	if n == 0 {
		return spreadMax
	}
	blocks := make([]float64, spreadBlocks)
	for i := range blocks {
		blocks[i] = stat.Mean(periods[i*n:(i+1)*n], nil)
	}
	mean, deviation := stat.MeanStdDev(blocks, nil)
	return min(max(spreadFactor*deviation/mean, spreadMin), spreadMax)
}
