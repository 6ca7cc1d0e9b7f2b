package api

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/observe/attribution"
)

// figure is a metric that is read from the status when Prometheus asks. Its labels are words
// of a bounded set: states, codes, the names of engines. No rollout, group or worker is one.
type figure struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	read       func(s protocol.Status, emit func(value float64, labels ...string))
}

// one is a figure without labels.
func one(name, help string, kind prometheus.ValueType, read func(s protocol.Status) float64) figure {
	return figure{name, help, kind, nil, func(s protocol.Status, emit func(float64, ...string)) { emit(read(s)) }}
}

// of is a figure of a part of the status, which is nil where a control plane has none.
func of[T any](part func(protocol.Status) *T, name, help string, kind prometheus.ValueType, labels []string, read func(part *T, emit func(value float64, labels ...string))) figure {
	return figure{name, help, kind, labels, func(s protocol.Status, emit func(float64, ...string)) {
		if p := part(s); p != nil {
			read(p, emit)
		}
	}}
}

// single is a figure of a part without labels.
func single[T any](part func(protocol.Status) *T, name, help string, kind prometheus.ValueType, read func(part *T) float64) figure {
	return of(part, name, help, kind, nil, func(p *T, emit func(float64, ...string)) { emit(read(p)) })
}

// bounds is a figure of every bound.
func bounds(name, help string, kind prometheus.ValueType, read func(protocol.Bound) float64) figure {
	return figure{name, help, kind, []string{"bound"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, b := range s.Bounds {
			emit(read(b), b.Name)
		}
	}}
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// planeStates are the states of a control plane, engineStates of an engine, trainerStates of
// a trainer, bindings the sides that can limit a run, stallCodes the watchdog's.
var (
	planeStates   = []string{"starting", "running", "draining", "standby", "stopped", "failed"}
	trainerStates = []string{"absent", "idle", "offered", "training", "embedded", "service"}
	bindings      = []string{"rollout", "train", "environment", "sync", "sandbox", "verifier", "scorer", "prefill", "validation", "admission"}
	stallCodes    = []string{"no_trainer", "silent_trainer", "no_sender", "not_joined", "lost_worker", "no_worker", "straggler", "engine_paused",
		"engine_lost", "queue_full", "short_batch", "hold", "disk_full", "unknown"}
)

// oneOf emits a 1 for the word that holds and a 0 for the others, so that a series goes to
// 0 instead of away.
func oneOf(words []string, holds func(word string) bool, emit func(float64, ...string)) {
	for _, word := range words {
		emit(truth(holds(word)), word)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// figures in the order of docs/reference/prometheus.md, which is tested against them.
var figures = slices.Concat(planeFigures, clientFigures, senderFigures, controlFigures, environmentFigures, scoringFigures, throughputFigures, verlFigures)

// cellFigures are those of a cell: of the rollouts that are played in its process.
var cellFigures = slices.Concat(clientFigures, environmentFigures)

// clientFigures are those of the clients of this process.
var clientFigures = []figure{
	one("headway_workers_known", "Environment workers that called within the last minute.", gauge, func(s protocol.Status) float64 { return float64(s.Workers.Known) }),
	one("headway_workers_silent", "Environment workers that hold claims and are silent.", gauge, func(s protocol.Status) float64 { return float64(len(s.Workers.Silent)) }),
	one("headway_rollouts_claimed", "Rollouts at environment workers.", gauge, func(s protocol.Status) float64 { return float64(s.Workers.Claimed) }),
	one("headway_rollouts_offered", "Rollouts that wait for an environment worker.", gauge, func(s protocol.Status) float64 { return float64(s.Workers.Offered) }),
	bounds("headway_bound_held", "What is taken of a bound on clients together, in the unit of its name.", gauge, func(b protocol.Bound) float64 { return float64(b.Held) }),
	bounds("headway_bound_max", "The bound.", gauge, func(b protocol.Bound) float64 { return float64(b.Max) }),
	bounds("headway_bound_binding", "1 while new work waits for the bound or is refused.", gauge, func(b protocol.Bound) float64 { return truth(b.Binding) }),
	bounds("headway_bound_refused_total", "Calls that were refused at the bound.", counter, func(b protocol.Bound) float64 { return float64(b.Refused) }),
}

// planeFigures are those that every control plane has.
var planeFigures = []figure{
	{"headway_state", "1 for the control plane's state.", gauge, []string{"state"}, func(s protocol.Status, emit func(float64, ...string)) {
		oneOf(planeStates, func(w string) bool { return w == s.State }, emit)
	}},
	{"headway_cell_silent_seconds", "Time since a cell in another process was heard, -1 before its first word.", gauge, []string{"cell"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, c := range s.Cells {
			emit(c.SilentS, c.Name)
		}
	}},
	{"headway_limit_share", "Largest share of a bound that one of the run's processes has taken. Only with cells.", gauge, []string{"bound"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, l := range s.Limits {
			emit(l.Share, l.Name)
		}
	}},
	one("headway_uptime_seconds", "Time since the process began.", gauge, func(s protocol.Status) float64 { return s.UptimeS }),
	one("headway_policy_version", "Newest committed policy version.", gauge, func(s protocol.Status) float64 { return float64(s.Version) }),
	one("headway_run_steps", "Train steps that the run is to make, 0 for no end.", gauge, func(s protocol.Status) float64 { return float64(s.Steps) }),
	{"headway_rollouts", "Rollout attempts that are somewhere, by state.", gauge, []string{"state"}, func(s protocol.Status, emit func(float64, ...string)) {
		emit(float64(s.Ledger.InFlight), "in_flight")
		emit(float64(s.Ledger.Waiting), "waiting")
		emit(float64(s.Ledger.Queued), "queued")
		emit(float64(s.Ledger.Leased), "leased")
	}},
	one("headway_rollouts_admitted_total", "Rollout attempts ever started.", counter, func(s protocol.Status) float64 { return float64(s.Ledger.Admitted) }),
	{"headway_rollouts_ended_total", "Rollout attempts that have ended, by end.", counter, []string{"end"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, end := range []struct {
			name  string
			count int64
		}{{"trained", s.Ledger.Trained}, {"evicted", s.Ledger.Evicted}, {"discarded", s.Ledger.Discarded}, {"filtered", s.Ledger.Filtered},
			{"pruned", s.Ledger.Pruned}, {"cancelled", s.Ledger.Cancelled}, {"failed", s.Ledger.Failed}} {
			emit(float64(end.count), end.name)
		}
	}},
	{"headway_rollout_failures_total", "Rollout attempts that failed since the warm-up: by the infrastructure (infra), which are tried again, or because their task cannot be played or judged (data).", counter, []string{"kind", "reason"}, func(s protocol.Status, emit func(float64, ...string)) {
		f := s.Failures
		for _, why := range []struct {
			kind, reason string
			count        int64
		}{{"infra", "engine", f.Engine}, {"infra", "environment", f.Environment}, {"infra", "timeout", f.Timeout}, {"infra", "scorer", f.Scorer}, {"infra", "other", f.Other}, {"data", "data", f.Data}} {
			emit(float64(why.count), why.kind, why.reason)
		}
	}},
	{"headway_held_out", "Newest evaluation by players or workers: share of held-out prompts that were wholly right, their mean reward, and the version at which it began. A run without one has no such series.", gauge, []string{"of"}, func(s protocol.Status, emit func(float64, ...string)) {
		if h := s.HeldOut; h != nil {
			emit(h.Accuracy, "accuracy")
			emit(h.Reward, "reward")
			emit(float64(h.Version), "version")
		}
	}},
	one("headway_ledger_balanced", "1 while every attempt is accounted for; 0 is a defect.", gauge, func(s protocol.Status) float64 { return truth(s.Ledger.Balanced) }),
	one("headway_queue_groups", "Groups ready for the trainer.", gauge, func(s protocol.Status) float64 { return float64(s.Queue.Groups) }),
	one("headway_queue_capacity_groups", "Groups that the queue takes.", gauge, func(s protocol.Status) float64 { return float64(s.Queue.CapacityGroups) }),
	one("headway_queue_held_groups", "Ready groups kept out of a full queue.", gauge, func(s protocol.Status) float64 { return float64(s.Queue.HeldGroups) }),
	one("headway_live_groups", "Groups with rollouts under way.", gauge, func(s protocol.Status) float64 { return float64(s.Queue.LiveGroups) }),
	one("headway_batch_groups", "Groups of a batch.", gauge, func(s protocol.Status) float64 { return float64(s.Queue.BatchGroups) }),
	{"headway_engine_version", "Policy version that an engine, or a stage of it, serves.", gauge, []string{"engine", "stage"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, e := range s.Engines {
			if len(e.Stages) == 0 {
				emit(float64(e.Version), e.Name, "0")
			}
			for _, stage := range e.Stages {
				emit(float64(stage.Version), e.Name, strconv.Itoa(stage.Stage))
			}
		}
	}},
	{"headway_engine_state", "1 for the state that an engine is in.", gauge, []string{"engine", "state"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, e := range s.Engines {
			emit(1, e.Name, e.State)
		}
	}},
	{"headway_engine_active_rollouts", "Rollouts that an engine generates.", gauge, []string{"engine"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, e := range s.Engines {
			emit(float64(e.Active), e.Name)
		}
	}},
	{"headway_engine_slots", "Rollouts that an engine may generate at a time.", gauge, []string{"engine"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, e := range s.Engines {
			emit(float64(e.Slots), e.Name)
		}
	}},
	{"headway_channel_answers_total", "Answers of an engine by what became of a side channel's rows: kept, or dropped for a reason.", counter, []string{"engine", "channel", "end"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, e := range s.Engines {
			if e.Server == nil {
				continue
			}
			for _, c := range e.Server.Channels {
				emit(float64(c.Answers), e.Name, c.Name, "kept")
				for why, n := range c.Dropped {
					emit(float64(n), e.Name, c.Name, why)
				}
			}
		}
	}},
	{"headway_trainer_state", "1 for the trainer's state.", gauge, []string{"state"}, func(s protocol.Status, emit func(float64, ...string)) {
		oneOf(trainerStates, func(w string) bool { return w == s.Trainer.State }, emit)
	}},
	one("headway_trainer_forward_wrong", "1 while the trainer's log-probs disagree with the engines', by the newest batch that could tell.", gauge, func(s protocol.Status) float64 {
		if s.Forward != nil {
			return 1
		}
		return 0
	}),
	one("headway_trainer_lease", "Lease at the trainer, 0 for none.", gauge, func(s protocol.Status) float64 { return float64(s.Trainer.Lease) }),
	one("headway_trainer_silent_seconds", "Time since the trainer's last word.", gauge, func(s protocol.Status) float64 { return s.Trainer.SilentS }),
	one("headway_trainer_idle_ratio", "Share of time in which the trainer waited for a batch.", gauge, func(s protocol.Status) float64 { return s.Trainer.IdleRatio }),
	{"headway_channel_rows_total", "Rows of side channels in the batches offered since the control plane began: those that are there (present) and those that no engine has said (absent). Of those that are there, the ones that the store could not give when a trainer asked (lost).", counter, []string{"channel", "state"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, c := range s.Trainer.Channels {
			emit(float64(c.Rows), c.Name, "present")
			emit(float64(c.Absent), c.Name, "absent")
			emit(float64(c.Lost), c.Name, "lost")
		}
	}},
	one("trainer_idle_ratio", "verl's trainer/idle_ratio: the same as headway_trainer_idle_ratio.", gauge, func(s protocol.Status) float64 { return s.Trainer.IdleRatio }),
	{"headway_staleness_versions", "Staleness of the groups trained in the last steps.", gauge, []string{"statistic"}, func(s protocol.Status, emit func(float64, ...string)) {
		emit(s.Staleness.Mean, "mean")
		emit(s.Staleness.P50, "p50")
		emit(s.Staleness.P95, "p95")
		emit(s.Staleness.Max, "max")
		emit(s.Staleness.PQS, "pqs_mean")
		emit(s.Staleness.IQS, "iqs_mean")
	}},
	{"headway_staleness_source_versions", "Part of the mean staleness of the groups trained in the last steps, by where it comes from.", gauge, []string{"source"}, func(s protocol.Status, emit func(float64, ...string)) {
		for i := range attribution.Sources {
			versions := 0.0
			if s.Attribution != nil {
				versions = s.Attribution.Parts[i].Versions
			}
			emit(versions, i.String())
		}
	}},
	{"headway_idle_share", "Share of time in which the trainer, or the engines' slots, waited in the last steps, by what for.", gauge, []string{"side", "reason"}, func(s protocol.Status, emit func(float64, ...string)) {
		var a attribution.Summary
		if s.Attribution != nil {
			a = *s.Attribution
		}
		for _, reason := range a.Trainer.Reasons() {
			emit(reason.Share, "trainer", reason.Name)
		}
		for _, reason := range a.Engines.Reasons() {
			emit(reason.Share, "engines", reason.Name)
		}
	}},
	one("headway_little_mismatch", "How far stamps and the updates that groups lived through disagree, as a share; above 0.01 is a finding.", gauge, func(s protocol.Status) float64 {
		if s.Attribution == nil {
			return 0
		}
		return s.Attribution.Little.Mismatch
	}),
	{"headway_binding", "1 for the side that limits the run.", gauge, []string{"side"}, func(s protocol.Status, emit func(float64, ...string)) {
		oneOf(bindings, func(w string) bool { return w == s.Binding }, emit)
	}},
	{"headway_stalled", "1 for what is missing while nothing makes progress.", gauge, []string{"code"}, func(s protocol.Status, emit func(float64, ...string)) {
		found := make(map[string]bool)
		if s.Stall != nil {
			for _, f := range s.Stall.Findings {
				found[f.Code] = true
			}
		}
		oneOf(stallCodes, func(w string) bool { return found[w] }, emit)
	}},
	one("headway_stalled_seconds", "Time without progress, once the watchdog complains; else 0.", gauge, func(s protocol.Status) float64 {
		if s.Stall == nil {
			return 0
		}
		return s.Stall.SinceS
	}),
	one("headway_recovery_seconds", "Time that the process took to recover the run at its start; 0 for a new run.", gauge, func(s protocol.Status) float64 { return recovery(s).WallS }),
	one("headway_recovery_events", "Events replayed after the snapshot at the start.", gauge, func(s protocol.Status) float64 { return float64(recovery(s).Events) }),
	one("headway_recoveries_total", "Recoveries of this run.", counter, func(s protocol.Status) float64 { return float64(recovery(s).Restarts) }),
	one("headway_writer_epoch", "Epoch of the writer's fence.", gauge, func(s protocol.Status) float64 { return float64(s.Writer.Epoch) }),
	{"headway_disk_bytes", "Bytes that the store holds, by kind.", gauge, []string{"kind"}, func(s protocol.Status, emit func(float64, ...string)) {
		emit(float64(s.Disk.LogBytes), "log")
		emit(float64(s.Disk.PayloadBytes), "payloads")
		emit(float64(s.Disk.SnapshotBytes), "snapshots")
		emit(float64(s.Disk.WeightsBytes), "weights")
	}},
	{"headway_disk_max_bytes", "Bytes that the store may hold, by kind, of the kinds that have a bound.", gauge, []string{"kind"}, func(s protocol.Status, emit func(float64, ...string)) {
		emit(float64(s.Disk.BytesMax-s.Disk.PayloadBytesMax), "log")
		emit(float64(s.Disk.PayloadBytesMax), "payloads")
	}},
	one("headway_disk_full", "1 while writes wait for room.", gauge, func(s protocol.Status) float64 { return truth(s.Disk.Full) }),
}

func recovery(s protocol.Status) protocol.Recovery {
	if s.Recovery == nil {
		return protocol.Recovery{}
	}
	return *s.Recovery
}

// descriptions of the figures by name, made once.
var descriptions = func() map[string]*prometheus.Desc {
	made := make(map[string]*prometheus.Desc, len(figures))
	for _, f := range figures {
		made[f.name] = prometheus.NewDesc(f.name, f.help, f.labels, nil)
	}
	return made
}()

var infoDescription = prometheus.NewDesc("headway_info", "1, with what this process is.", []string{"version", "run", "policy"}, nil)

// planeCollector reads one status for each scrape.
type planeCollector struct {
	version string
	figures []figure
	status  func() protocol.Status
}

// Describe tells the registry what there is.
func (c *planeCollector) Describe(to chan<- *prometheus.Desc) {
	to <- infoDescription
	for _, f := range c.figures {
		to <- descriptions[f.name]
	}
}

// Collect sends the figures of one status.
func (c *planeCollector) Collect(to chan<- prometheus.Metric) {
	s := c.status()
	to <- prometheus.MustNewConstMetric(infoDescription, gauge, 1, c.version, s.Run, s.Policy)
	for _, f := range c.figures {
		f.read(s, func(value float64, labels ...string) {
			if metric, err := prometheus.NewConstMetric(descriptions[f.name], f.kind, value, labels...); err == nil {
				to <- metric
			}
		})
	}
}
