// The words of explain/dashboard/wire.go, attribution and diagnosis, as the pages read them.

export interface Info {
  name: string; kind: "live" | "run" | "simulation"; program: string; config: string; task: string; policy: string;
  group_size: number; batch_groups: number; queue_groups: number; concurrency_rollouts: number;
  sync_mode: string; sync_every: number; steps: number; engines: string[] | null; cells?: string[]; max_staleness: number; warmup_steps: number;
  has_tokens: boolean; has_text: boolean; timeline_level_min: number; timeline_level_max: number;
}
export interface Health {
  production_rollouts_per_s: number; effective_rollouts_per_s: number; consumption_rollouts_per_s: number;
  consumption_rollouts_per_wall_s: number; binding: string; sentence: string; queue_trend_groups_per_step: number;
  trainer_idle_ratio: number; rollout_idle_ratio: number; tokens_per_s: number; period_s: number; step_s: number;
  acceptance: number; dropped_share: number; trainer_absent_ratio: number;
  from_step: number; to_step: number; window_s: number; idle_trainer: Idle; idle_engines: Idle;
}
export interface Idle { starved: number; syncing: number; validating: number; paused: number; blocked: number; total: number }
export interface Attribution {
  groups: number; staleness_mean: number; parts: { source: string; versions: number; share: number }[] | null;
  dominant: string; share: number; ties: string[] | null; trainer_idle: Idle; engines_idle: Idle; engines_standing?: { syncing: number; validating: number };
  little: { staleness: number; lived: number; mismatch: number };
}
export interface Ledger {
  admitted: number; in_flight: number; waiting: number; queued: number; leased: number; trained: number; evicted: number;
  discarded: number; filtered: number; pruned: number; cancelled: number; failed: number;
}
export interface QueueState { groups: number; capacity_groups: number; held_groups: number; open_groups: number; batch_groups: number }
/** What the status of a control plane has of its cells. */
export interface Bound { name: string; held: number; max: number; binding: boolean; refused: number }
export interface Cell { name: string; build?: string; incarnation?: number; silent_s: number; engines: number; slots: number; away?: boolean; bounds?: Bound[] }
export interface Limit { name: string; held: number; max: number; processes: number; fullest: string; share: number; one_more: number }
export interface EngineState { name: string; cell?: string; state: string; version: number; active: number; slots: number }
export interface Predicted { before_mean: number | null; closed_form_mean: number | null; pqs: number | null; iqs: number | null; period_s: number | null }
export interface ControlSetting { name: string; start: number; value: number; least: number; most: number; moves: number; why?: string }
export interface ControlMove { at_ns: number; step: number; setting: string; from: number | null; to: number; reason: string }
export interface Moves { earlier: number; moves: ControlMove[] }
/** The goal that a run keeps by moving its own settings. */
export interface Control {
  state: string; target_mean?: number; target_share?: number; within?: number; of?: string; window: number; measured_mean: number; measured_share: number;
  steps: number; held_steps: number; held_batches: number; unreachable_steps: number; silences: number; nearest?: number; binding?: string; moves: number;
  reasons: Record<string, number>; last: { step: number; time_s: number; setting: string; from: number; to: number; reason: string }[]; settings: ControlSetting[];
  moves_in_all: number; held_in_all: number; batches_in_all: number; steps_in_all: number;
}
export interface Summary {
  control: Control | null;
  at_ns: number; ended: boolean; state: string; version: number; health: Health;
  staleness: { mean: number; p50: number; p95: number; p99: number; max: number; histogram: number[] | null; mean_syncs: number };
  pqs: number; iqs: number; attribution: Attribution | null; predicted: Predicted | null; ledger: Ledger; balanced: boolean;
  queue: QueueState; engines: EngineState[] | null; reward: { first: number; last: number; best: number };
  signal: { solve_rate: number; all_solved_share: number; none_solved_share: number };
  length: { sampled_mean_tokens: number; trained_mean_tokens: number; sampled_max_tokens: number; trained_max_tokens: number; truncated_share: number };
  latency: Record<string, number>; waste: Record<string, any>;
  clip_fraction: number; mean_log_ratio: number; effective_sample_size: number; held_out: number | null; held_out_step: number; stall?: string;
  reading: { bytes: number; of: number } | null; missed_events: number; problem?: string;
}
export interface Series { step: number[] | null; time_s: number[] | null; columns: Record<string, (number | null)[]> | null }
export interface QueueGroup {
  id: number; start_version: number; ready_version: number; age_s: number; wait_s: number; staleness_now: number;
  scored: number; size: number; tokens: number; reward_mean: number; held: boolean;
}
export interface Queue { state: QueueState; ready: QueueGroup[] | null; open: QueueGroup[] | null }
export interface GroupLine {
  id: number; step: number; end: string; staleness: number; reward_mean: number; reward_min: number; reward_max: number; tokens: number; prompt: string; readable: boolean;
}
export interface Groups { groups: GroupLine[] | null; next: number }
export interface Turn {
  role: "prompt" | "policy" | "tool" | "verifier"; name?: string; text: string; pieces?: string[]; ids?: number[]; logprobs?: number[];
  versions?: number[]; log_ratios?: (number | null)[]; duration_s?: number;
}
export interface RolloutDetail { sample: number; attempt: number; reward: number; advantage: number | null; truncated: boolean; turns: Turn[] | null }
export interface GroupDetail extends GroupLine {
  start_version: number; ready_version: number; split: number[] | null; rollouts: RolloutDetail[] | null; prompt_text: string; meta?: Record<string, string[]>;
}
export interface Figure { value?: number; origin?: string; [key: string]: unknown }
export interface Change {
  set: string; overrides?: string[] | null; holds_fixed?: string; staleness_mean: number; period_ratio: number; gain: number; gain_low?: number; gain_high?: number; method: string; price: string;
}
export interface Finding {
  code: string; title: string; severity: "cost" | "warning" | "defect"; evidence: string[] | null; cost_versions: number; cost_ratio: number;
  change?: Change | null; no_setting?: string; fails?: string;
}
export interface Report {
  run: string; source: string; settled: { ok: boolean; why?: string; more_steps?: number; from_step: number; steps: number };
  fitted: Record<string, Figure>; compared: { what: string; measured: number; half: number; predicted: number; method: string }[] | null;
  attribution: Attribution | null; findings: Finding[] | null;
  drift: { what: string; first: number; last: number; per_step: number; sure: boolean; means?: string }[] | null; warnings: string[] | null;
}

export type ConnectionState = "connecting" | "live" | "idle" | "ended" | "lost" | "token";
export interface Connection { state: ConnectionState; message: string; sinceMS: number; retryAtMS: number }

export interface FrontierPoint {
  utilization: number; staleness_mean: number; staleness_p95: number; pqs: number; iqs: number; period_ratio: number; regime: string;
}
export interface Frontier {
  inputs: Record<string, number>; choices: Record<string, string> | null; point: FrontierPoint; here: FrontierPoint | null; curve: FrontierPoint[] | null;
  cheapest: { change: string; holds_fixed: string; staleness_mean: number; period_ratio: number } | null; warnings: string[] | null;
}
export interface Bar {
  id: number; lane: string; row: number; from_s: number; to_s: number; label: string; kind: string; version: number;
}
export interface Schedule {
  topology: string; title: string; bars: Bar[] | null; arrows: { from: number; to: number; why: string }[] | null;
  period_s: number; rollouts_per_s: number; trainer_idle_ratio: number; rollout_idle_ratio: number; staleness_mean: number;
  clip_fraction: number | null; within_budget: boolean; notes: string[] | null;
}
export interface Schedules { inputs: Record<string, number>; schedules: Schedule[] | null }
