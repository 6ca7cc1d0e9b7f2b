package protocol

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
)

// Status is the state of a control plane: GET /api/v1/status.
type Status struct {
	Run string `json:"run"`
	// Cell is the name of the cell that answers, of which the status has what is in its process; empty for a control plane.
	Cell string `json:"cell,omitempty"`
	// State is starting, running, draining, standby, stopped or failed.
	State string `json:"state"`
	// Over: the run has made all its train steps, and nothing follows. A control plane that is only stopped goes on later.
	Over bool `json:"over,omitempty"`
	// Waits is what a run that has not begun, or not begun again, waits for; empty once it goes on.
	Waits   string       `json:"waits,omitempty"`
	Version loop.Version `json:"version"`
	// Steps is how many train steps the run is to make, 0 for no end; Version counts those done.
	Steps  int    `json:"steps"`
	Policy string `json:"policy"`
	// Throughput is queue health: the groups that enter and leave, and their rates.
	Throughput Throughput `json:"throughput"`
	Ledger     Ledger     `json:"ledger"`
	Queue      Queue      `json:"queue"`
	Engines    []Engine   `json:"engines"`
	Trainer    Trainer    `json:"trainer"`
	Workers    Workers    `json:"workers"`
	// Sender is who has the trainer's weights for engines that take them by a collective; nil where none does.
	Sender *Sender `json:"sender,omitempty"`
	// Gateway is what agents have asked of /v1; nil where it is not served.
	Gateway *Gateway `json:"gateway,omitempty"`
	// Environment is what the control plane plays itself; nil where workers of somebody else's play.
	Environment *EnvironmentStatus `json:"environment,omitempty"`
	// Bounds are on what clients together may take of this process; empty before it has any.
	Bounds []Bound `json:"bounds,omitempty"`
	// Cells are the run's cells in other processes, in the order of the document, as the control plane heard of them.
	Cells []Cell `json:"cells,omitempty"`
	// Limits are the bounds of this process and of its cells together, the one that is nearest to bind first. There are none
	// without cells.
	Limits []Limit `json:"limits,omitempty"`
	// Staleness of the groups trained in the last steps, in versions.
	Staleness Staleness `json:"staleness"`
	// Control is the goal that the run keeps, and how; nil without one.
	Control *Control `json:"control,omitempty"`
	// Attribution says where the staleness and the idle time of the last train steps came from; nil
	// before the first.
	Attribution *attribution.Summary `json:"attribution,omitempty"`
	// Verl has figures under verl's own names, a slash as an underscore, where the notion is the same.
	Verl map[string]float64 `json:"verl,omitempty"`
	// Failures are the rollout attempts that failed, by why. They count from the end of the warm-up on.
	Failures Failures `json:"failures"`
	// Scoring is what teachers and references do; none where the document names none.
	Scoring []Scoring `json:"scoring,omitempty"`
	// HeldOut is the newest evaluation by players or workers; nil before the first.
	HeldOut *HeldOut `json:"held_out,omitempty"`
	// Binding is the side that limits: rollout, train, environment, sync, sandbox, verifier, scorer, prefill, validation or admission.
	Binding string `json:"binding"`
	// Stall names what is missing while nothing makes progress; nil while something does.
	Stall *Stall `json:"stall,omitempty"`
	// Held says which engines a weight sync waits for, and until when. The run may well make progress
	// meanwhile with the weights that engines have. It is nil while a sync goes as it should, or none is
	// under way.
	Held *Finding `json:"held,omitempty"`
	// Forward says how the trainer's log-probs differ from the engines', with the likely cause as code. It is
	// nil while they agree, or nothing is known of them.
	Forward *Finding `json:"forward,omitempty"`
	// Recovery is how the process began; nil for a new run.
	Recovery *Recovery `json:"recovery,omitempty"`
	// Sync is the newest weight sync; nil before the first.
	Sync *Sync `json:"sync,omitempty"`
	// Writer is the process that holds the run's lease, with the epoch of its fence.
	Writer Writer `json:"writer"`
	// Disk is what the store holds and may hold.
	Disk    Disk    `json:"disk"`
	UptimeS float64 `json:"uptime_s"`
}

// Ledger is the loop's, with its check.
type Ledger struct {
	loop.Ledger
	Balanced bool `json:"balanced"`
}

// Failures are rollout attempts that failed. Their shares are of all attempts that have a reward or failed.
type Failures struct {
	// Engine, Environment, Timeout and Other are failures of the infrastructure.
	Engine      int64 `json:"engine"`
	Environment int64 `json:"environment"`
	Timeout     int64 `json:"timeout"`
	Other       int64 `json:"other"`
	// Scorer counts those that no teacher or reference would score; they are the infrastructure's too.
	Scorer int64 `json:"scorer,omitempty"`
	// Data counts those whose task cannot be played or judged.
	Data int64 `json:"data"`
	// InfraRatio is the share of the infrastructure's, DataRatio that of Data.
	InfraRatio float64 `json:"infra_ratio"`
	DataRatio  float64 `json:"data_ratio"`
}

// HeldOut is what came of held-out prompts. It began at Version; Oldest and Newest are the versions that sampled.
type HeldOut struct {
	Version  loop.Version `json:"version"`
	Accuracy float64      `json:"accuracy"`
	Reward   float64      `json:"reward"`
	// Scored prompts have a reward, the Failed have none.
	Scored int          `json:"scored"`
	Failed int          `json:"failed"`
	Oldest loop.Version `json:"oldest_version"`
	Newest loop.Version `json:"newest_version"`
}

// Throughput counts the groups that entered and left the queue over the last train steps. All is 0
// before the second one.
type Throughput struct {
	// Production counts rollouts that were scored, effective leaves out filtered groups, and consumption
	// counts trained ones. They are per second of train step, and per second of wall time, idle and sync
	// included. Dropped counts those of groups that were evicted or discarded.
	ProductionRolloutsPerS      float64 `json:"production_rollouts_per_s"`
	EffectiveRolloutsPerS       float64 `json:"effective_rollouts_per_s"`
	ConsumptionRolloutsPerS     float64 `json:"consumption_rollouts_per_s"`
	ConsumptionRolloutsPerWallS float64 `json:"consumption_rollouts_per_wall_s"`
	DroppedRolloutsPerS         float64 `json:"dropped_rollouts_per_s"`
	// TokensPerS counts tokens of scored responses.
	TokensPerS float64 `json:"tokens_per_s"`
	// PeriodS is the mean time between two updates, StepS that of a train step alone.
	PeriodS float64 `json:"period_s"`
	StepS   float64 `json:"step_s"`
	// TrainerIdleRatio and RolloutIdleRatio are what both sides waited.
	TrainerIdleRatio float64 `json:"trainer_idle_ratio"`
	RolloutIdleRatio float64 `json:"rollout_idle_ratio"`
	// QueueTrendGroupsPerStep is by how many groups a step the queue grew.
	QueueTrendGroupsPerStep float64 `json:"queue_trend_groups_per_step"`
	// Steps is how many train periods all this is of.
	Steps int `json:"steps"`
}

// Queue is what waits for the trainer.
type Queue struct {
	Groups         int `json:"groups"`
	CapacityGroups int `json:"capacity_groups"`
	HeldGroups     int `json:"held_groups"`
	LiveGroups     int `json:"live_groups"`
	BatchGroups    int `json:"batch_groups"`
	// FullS is for how many seconds it has been full, 0 while it is not.
	FullS float64 `json:"full_s,omitempty"`
}

// Engine is a rollout engine.
type Engine struct {
	Name string `json:"name"`
	// Kind is embedded, vllm, sglang, llamacpp or openai.
	Kind string `json:"kind"`
	// Cell is the process that plays on it, empty for the control plane.
	Cell    string       `json:"cell,omitempty"`
	Version loop.Version `json:"version"`
	State   string       `json:"state"`
	Active  int          `json:"active"`
	Slots   int          `json:"slots"`
	// Stages are the versions of its pipeline stages, where it has several.
	Stages []EngineVersion `json:"stages,omitempty"`
	// Server is what an engine is that is a server of its own; nil for others.
	Server *Server `json:"server,omitempty"`
	// Started is what a fleet says of an engine that it starts and stops; nil for others.
	Started *Started `json:"started,omitempty"`
}

// Started is an engine that a fleet starts and stops.
type Started struct {
	// State is away, starting, running, stopping or failed, for SinceS seconds.
	State  string  `json:"state"`
	SinceS float64 `json:"since_s"`
	// Starts counts the times it was asked for, Failures those that came to nothing.
	Starts   int `json:"starts"`
	Failures int `json:"failures"`
	// StartS is how long the last start took that went well, in seconds; 0 for none.
	StartS float64 `json:"start_s,omitempty"`
	// Error of the last failure, empty once it runs.
	Error string `json:"error,omitempty"`
}

// Server is an engine that is a server of its own.
type Server struct {
	// URL is where it is, without anything secret; Software its name and version as it states them,
	// empty before it has answered.
	URL      string `json:"url"`
	Software string `json:"software,omitempty"`
	// State is new (nothing was switched yet), serving, switching, unknown (a switch failed), down or
	// closed; Cause says why for the last three.
	State string `json:"state"`
	Cause string `json:"cause,omitempty"`
	// LeftS is how much longer its running meeting with a sender, or its switch, may take. It is 0 where
	// none runs, for nothing else of a load is bounded.
	LeftS float64 `json:"left_s,omitempty"`
	// Versions says how its tokens get their versions: reported by it, or derived from when it was
	// switched; empty before it has answered.
	Versions string `json:"versions,omitempty"`
	// Weights is how new versions reach it: disk, lora, distributed, restart, service or none. Cache is what becomes of keys
	// and values of old weights in truth: salt, flush or keep, or none where it keeps no prefixes.
	Weights string `json:"weights"`
	Cache   string `json:"cache,omitempty"`
	// Running counts responses under way, Tokens those that were sampled, and Retries the calls that
	// went on with a broken response. Losses counts the times that it was lost.
	Running int   `json:"running"`
	Tokens  int64 `json:"tokens"`
	Retries int64 `json:"retries"`
	Losses  int64 `json:"losses"`
	// Disagreements counts tokens of which it named another version than its switches would have.
	Disagreements int64 `json:"disagreements"`
	// Channels says what has become of side channels' rows (rollout.channels); empty before the first answer.
	Channels []ServerChannel `json:"channels,omitempty"`
	// Missing is what it lacks.
	Missing []Missing `json:"missing,omitempty"`
}

// ServerChannel says what has become of a side channel that an engine's server was asked for.
type ServerChannel struct {
	Name string `json:"name"`
	// Answers counts those whose rows were kept. Dropped counts the others, by reason: missing, form, count, range,
	// negative, zeros, repeated, token, memory or cancelled.
	Answers int64            `json:"answers"`
	Dropped map[string]int64 `json:"dropped,omitempty"`
	// Unstarted counts answers that had rows before the first that was asked for.
	Unstarted int64 `json:"unstarted,omitempty"`
}

// Missing is something that an engine's server lacks.
type Missing struct {
	// The missing feature and its cost; Flag is how to start the server with it. Fatal: nothing can be
	// trained on without it.
	What  string `json:"what"`
	Flag  string `json:"flag,omitempty"`
	Fatal bool   `json:"fatal,omitempty"`
}

// Gateway counts what agents have asked of OpenAI's paths under /v1.
type Gateway struct {
	// Requests were asked in all, Refused those that were answered with an error; Open are under way.
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
	Open     int64 `json:"open"`
	// Turns were sampled whole, Aborted taken back because their client left, Tokens sampled in turns.
	Turns   int64 `json:"turns"`
	Aborted int64 `json:"aborted"`
	Tokens  int64 `json:"tokens"`
	// Offered are turns that could call tools, Calls the calls that were told from them, and CallsMissed the
	// attempts that were none.
	Offered     int64 `json:"offered,omitempty"`
	Calls       int64 `json:"calls,omitempty"`
	CallsMissed int64 `json:"calls_missed,omitempty"`
	// Finding says that tools were offered many times and no call was ever told (code no_call); nil otherwise.
	Finding *Finding `json:"finding,omitempty"`
}

// Names of bounds. BoundProcessor is that of a process's processors: processor time in milliseconds a second. BoundRollouts is on
// the text of all rollouts under way.
const (
	BoundProcessor = "processor_ms_per_s"
	BoundRollouts  = "rollouts_bytes"
)

// Cell is a cell in another process.
type Cell struct {
	Name string `json:"name"`
	// Build and Incarnation name the process that was heard last. They are empty and 0 before this control plane has heard any.
	Build       string `json:"build,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"`
	// SilentS is how long nothing was heard of it, -1 before the first word.
	SilentS float64 `json:"silent_s"`
	// Engines and Slots are how many the document gives to it.
	Engines int `json:"engines"`
	Slots   int `json:"slots"`
	// Away says that a fleet has all of its engines, so that no one waits for the cell.
	Away bool `json:"away,omitempty"`
	// Bounds are those of its process, as it said them within the last seconds. They are empty until it has.
	Bounds []Bound `json:"bounds,omitempty"`
}

// Limit is a bound of several processes together.
type Limit struct {
	// Name is that of the bound. Held and Max are the sums over Processes, which have said it.
	Name      string `json:"name"`
	Held      int64  `json:"held"`
	Max       int64  `json:"max"`
	Processes int    `json:"processes"`
	// Fullest is the cell whose share is the largest, "" for the control plane's own, and Share is that share of its bound.
	Fullest string  `json:"fullest"`
	Share   float64 `json:"share"`
	// OneMore is what one more cell would add to Max: the mean of the cells that have said theirs.
	OneMore int64 `json:"one_more"`
}

// Bound is on what clients together may take of a control plane.
type Bound struct {
	// Name says of what, with its unit: rollouts_bytes of all rollouts under way, rollout_bytes of the
	// largest, and those of the server. They are bodies_bytes, connections (of clients), newcomers (connections
	// without a request of a client), and requests (of the role that has most). BoundProcessor is that of its processors.
	Name string `json:"name"`
	// Held is how much of Max is taken. Binding: new work waits for it or is refused. Refused counts
	// the calls that were.
	Held    int64 `json:"held"`
	Max     int64 `json:"max"`
	Binding bool  `json:"binding"`
	Refused int64 `json:"refused"`
}

// Trainer is the trainer's side of the lease.
type Trainer struct {
	Name string `json:"name"`
	// State is absent (never connected, or silent), idle (asks, and no batch is full), offered (a batch waits
	// for it) or training. It is embedded for a trainer in the process, and service for that of Tinker's API
	// at which the engine samples.
	State string `json:"state"`
	// Lease at the trainer, 0 for none; SilentS since its last word.
	Lease     loop.LeaseID `json:"lease"`
	SilentS   float64      `json:"silent_s"`
	IdleRatio float64      `json:"idle_ratio"`
	WorldSize int          `json:"world_size"`
	// Channels are the side channels of the batches that were offered since the control plane began.
	Channels []ChannelSummary `json:"channels,omitempty"`
}

// Sender is the process from which engines take their tensors.
type Sender struct {
	Name string `json:"name"`
	// State is serving, lost (silent) or absent (none has come, or the last one has ended in order).
	State string `json:"state"`
	// Backend of its collectives: nccl or gloo.
	Backend string `json:"backend,omitempty"`
	// Holds are the versions whose tensors it has, Groups its collectives with engines that stand, Joining
	// those that are being made.
	Holds   []loop.Version  `json:"holds,omitempty"`
	Groups  []string        `json:"collectives,omitempty"`
	Joining []SenderJoining `json:"joining,omitempty"`
	// Sends counts the broadcasts of a version to an engine that have ended since the control plane began,
	// FailedSends those in which either side failed. SentVersion is the newest that was sent, -1 for none.
	Sends       int64        `json:"sends"`
	FailedSends int64        `json:"failed_sends"`
	SentVersion loop.Version `json:"sent_version"`
	// SilentS since its last word.
	SilentS float64 `json:"silent_s"`
	// Waiting names the engines that have weights to take, or a group to make, and no sender for it.
	Waiting []string `json:"waiting,omitempty"`
}

// Workers are the environment's workers.
type Workers struct {
	// Known have called within the last minute; Claimed and Offered count rollouts.
	Known   int `json:"known"`
	Claimed int `json:"claimed"`
	Offered int `json:"offered"`
	// Silent names workers that hold claims and have not called for longer than half a claim lasts. For
	// ten minutes it also names those that have not called since a claim of theirs expired.
	Silent []string `json:"silent,omitempty"`
}

// Staleness in versions.
type Staleness struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	Max  float64 `json:"max"`
	PQS  float64 `json:"pqs"`
	IQS  float64 `json:"iqs"`
}

// Stall says what is missing.
type Stall struct {
	// SinceS is how long there has been no progress.
	SinceS float64 `json:"since_s"`
	// Findings, the likeliest cause first.
	Findings []Finding `json:"findings"`
}

// Finding is one cause of a stall, or another fault, under a code of its own.
type Finding struct {
	// Code is no_trainer, silent_trainer, no_sender, lost_worker, no_worker, straggler, engine_paused,
	// engine_lost, queue_full, short_batch, hold, disk_full or unknown.
	Code string `json:"code"`
	// Subject names the engine, worker, trainer or group.
	Subject string `json:"subject,omitempty"`
	// Message is a sentence: the missing part, since when, and the remedy.
	Message string `json:"message"`
}

// Sync is a weight sync that has ended: a version on its way from its publish to being
// served by every engine.
type Sync struct {
	Version loop.Version `json:"version"`
	// LoadS is from the first engine's order to load it to the last one's having it. WaitS is from
	// then to the first switch, and SwitchS from that to the last. TotalS is from the publish to
	// being served everywhere.
	LoadS   float64 `json:"load_s"`
	WaitS   float64 `json:"wait_s"`
	SwitchS float64 `json:"switch_s"`
	TotalS  float64 `json:"total_s"`
	// Failed counts loads and switches that failed on the way.
	Failed int `json:"failed,omitempty"`
}

// Recovery says how long a restart took.
type Recovery struct {
	// SnapshotSeq is the event that the snapshot was taken at, Events how many were replayed after it.
	SnapshotSeq int64   `json:"snapshot_seq"`
	Events      int64   `json:"events"`
	WallS       float64 `json:"wall_s"`
	// Takeover: another process was the writer before. Restarts counts this run's recoveries.
	Takeover bool `json:"takeover"`
	Restarts int  `json:"restarts"`
}

// Writer is the process that owns the loop.
type Writer struct {
	Name  string `json:"name"`
	Epoch uint64 `json:"epoch"`
}

// Disk is the store's.
type Disk struct {
	LogBytes     int64 `json:"log_bytes"`
	PayloadBytes int64 `json:"payload_bytes"`
	WeightsBytes int64 `json:"weights_bytes"`
	// SnapshotBytes are the run's kept states, which no setting bounds: two of them, and those that wait for
	// removal.
	SnapshotBytes int64 `json:"snapshot_bytes"`
	BytesMax      int64 `json:"bytes_max"`
	// PayloadBytesMax is the part of BytesMax that payloads may take; 0 if it is not known.
	PayloadBytesMax int64 `json:"payload_bytes_max,omitempty"`
	// Full: writes wait for room.
	Full bool `json:"full"`
}
