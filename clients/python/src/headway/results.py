"""The results of calls, with attributes in the names of the program's JSON.

Generated from the program (make generate): docs/reference/outputs.schema.json describes the same documents.
"""
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .view import Result, View


class TheoryStaleness(View):
    """Staleness is the mean and the quantiles of staleness in versions."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    share_above_budget: float | None
    """share_above_budget is the share of trained groups over BudgetVersions; unknown where no budget was given."""


class PeriodFigures(View):
    """PeriodFigures is T relative to t_step and, where t_step is known, in seconds."""

    relative_to_step: float | None
    s: float | None


class Corrected(View):
    """Corrected holds the figures with the finite queue near ρ = 1 and the floor of the staleness count. pqs + iqs = Mean."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"period": PeriodFigures}

    pqs: float | None
    iqs: float | None
    mean: float | None
    period: PeriodFigures


class TheoryLever(View):
    """Lever is one change of the settings and its gain. Every lever says what it holds fixed, since that decides its sign (docs/theory-rules.md)."""

    name: str
    """name is one of tail, split, batch, queue factor, concurrency, sync."""
    change: str
    """change says what is turned, from and to."""
    holds_fixed: str
    """holds_fixed says what stays while it is turned."""
    staleness_mean: float | None
    """staleness_mean is the mean staleness after the change, versions, and corrected_mean the corrected one."""
    corrected_mean: float | None
    period_ratio: float | None
    """period_ratio is the time between updates after over before."""
    note: str | None
    """note says what else changes with it; "" for nothing."""


class SimulatedAnswer(View):
    """SimulatedAnswer says how much stands behind simulated figures."""

    steps: int
    """steps were measured, after warmup_steps."""
    warmup_steps: int
    settled: bool
    """settled is false where the means still moved, or were worth too little: then there are none, and why says what moved."""
    why: str | None
    staleness_mean_95: list[float] | None
    """staleness_mean_95 is the 95 % confidence interval of the mean staleness; null where there is none."""
    trained_over_sampled_length: float
    """trained_over_sampled_length is below 1 where short rollouts are trained on more often."""
    binding: str
    """binding is what limits: rollout, train, sync, environment, sandbox, verifier, scorer or prefill."""
    discarded_share: float
    """discarded_share is the share of ready groups that are never trained on."""


class Move(View):
    """Move is one change of a setting."""

    step: int
    """step is the trainer's version at which it was made, time_s when, in seconds since the run started."""
    time_s: float
    setting: str
    """setting by its name, from and to its values, reason why."""
    from_: float
    to: float
    reason: str


class ControlSetting(View):
    """ControlSetting is what became of one setting in the measured window."""

    name: str
    start: float
    """start is where it stood as the window began, value at its end, within Least and most."""
    value: float
    least: float
    most: float
    moves: int
    """moves counts its changes, why says why it was moved last; empty if it never was."""
    why: str | None


class TargetWithout(View):
    """TargetWithout is a document without its target."""

    staleness_mean: float
    """staleness_mean is in versions. period_ratio is the time between updates without over with the target. throughput_ratio is the rollouts trained a second with over without it: how much faster the run would be."""
    period_ratio: float
    throughput_ratio: float


class TargetLever(View):
    """TargetLever is what a change does to a document whose controller keeps its staleness."""

    change: str
    throughput_ratio: float | None
    """throughput_ratio is rollouts trained a second after over before, held_share the share of train steps that hold the target then. Both are null where the change could not be simulated."""
    held_share: float | None


class TargetAnswer(View):
    """TargetAnswer is what a simulation expects of a document's target."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"last": Move, "settings": ControlSetting, "without": TargetWithout, "levers": TargetLever}

    state: str | None
    """state at its end: settling, keeping, correcting, unreachable or silent."""
    target_mean: float | None
    """target_mean, target_share, within and of are the goal, window the train steps it is measured over."""
    target_share: float | None
    within: int | None
    of: str | None
    window: int | None
    measured_mean: float | None
    """measured_mean and measured_share are over the last window, -1 while nothing is known."""
    measured_share: float | None
    steps: int | None
    """steps counts train steps that were judged, and held_steps those with the goal held over the window that ended with them. held_batches counts those whose own batch met it, which is stricter."""
    held_steps: int | None
    held_batches: int | None
    unreachable_steps: int | None
    """unreachable_steps counts those that ended with the goal out of reach, silences how often no measurement came."""
    silences: int | None
    nearest: float | None
    """nearest and binding say what can be reached at best where the goal cannot, and what binds."""
    binding: str | None
    moves: int | None
    """moves counts changes of settings, reasons those by why, last the newest of them in order."""
    reasons: dict[str, int]
    last: list[Move]
    settings: list[ControlSetting]
    """settings are those that may move."""
    says: str
    """says is that in a sentence, with what to do where the target is not held."""
    without: TargetWithout | None
    """without is the same document without its target; null where it could not be simulated."""
    levers: list[TargetLever]
    """levers are those of the prediction, in the same order, by what they change under the target."""


class Prediction(Result):
    """The document of `headway predict --json`.

    Answer is the output of headway predict --json: the closed forms, or a simulation's figures in their place where none holds.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"staleness": TheoryStaleness, "period": PeriodFigures, "corrected": Corrected, "levers": TheoryLever, "simulated": SimulatedAnswer, "target": TargetAnswer}
    _rows: ClassVar[str] = "levers"

    regime: str
    """regime is rollout-bound or train-bound, by Utilization."""
    utilization: float
    """utilization is the effective ρ, after acceptance, environment and sync."""
    tail_multiplier: float
    """tail_multiplier is M, of times where an environment takes any."""
    pqs: float | None
    """pqs and iqs are the published closed form on effective inputs, versions."""
    iqs: float | None
    covered: bool
    """covered says that closed forms hold here to their published accuracy (docs/theory-accuracy.md); reason names why not (Reason), "" where covered. A command simulates where they do not."""
    reason: str
    staleness: TheoryStaleness
    """staleness is their sum, and the quantiles of Distribution."""
    token_staleness: float | None
    """token_staleness is the mean over tokens, versions, where weights change under running rollouts."""
    period: PeriodFigures
    """period is the mean time between updates."""
    dominant: str
    """dominant is the larger of pqs and iqs: pqs or iqs; empty if unknown."""
    corrected: Corrected
    """corrected is the best estimate of the same figures."""
    dropped_share: float | None
    """dropped_share is the share of ready groups that are never trained."""
    settling_steps: float
    """settling_steps is how long a run or simulation must warm up before its means can be compared with these."""
    levers: list[TheoryLever]
    """levers are what single changes would buy."""
    smooth: bool
    """smooth is false where staleness jumps with the settings (phase locking), so that digits after the first mean nothing."""
    warnings: list[str]
    """warnings say what the figures assume and where they do not hold."""
    basis: str
    """basis is "closed form" or "simulation"."""
    simulated: SimulatedAnswer | None
    """simulated is the simulation behind basis "simulation"."""
    target: TargetAnswer | None
    """target is what the simulation expects of the document's target; absent without one."""


class MetricsStaleness(View):
    """Staleness summarises trained groups. All figures count policy versions but mean_syncs. mean_syncs counts the weight syncs of versions after the group's start and up to the one it was trained from."""

    mean: float
    p50: int
    p95: int
    p99: int
    max: int
    histogram: list[int]
    """histogram[k] is how many groups were trained at staleness k."""
    mean_syncs: float


class Mean(View):
    """mean is a mean alone, as an object so that more can stand beside it."""

    mean: float


class Throughput(View):
    """Throughput is queue health: the groups that enter and leave, and the side that binds."""

    production_rollouts_per_s: float
    """production_rollouts_per_s counts finished rollouts; effective leaves out filtered groups."""
    effective_rollouts_per_s: float
    consumption_rollouts_per_s: float
    """consumption_rollouts_per_s counts trained rollouts per second of train step alone, consumption_rollouts_per_wall_s per second of wall time, idle and sync included."""
    consumption_rollouts_per_wall_s: float
    binding: str
    """binding is the side that limits: train, sync or rollout. It is validation where the trainer waits mostly for that or engines do mostly that. Rollouts are named environment, sandbox or judge where they spend most of their time there. They are named prefill where reading takes longer than decoding, for them or for their engines. Binding is admission where a rule has both sides wait, the engines longer."""


class Length(View):
    """Length compares what was sampled with what was trained, in tokens."""

    sampled_mean_tokens: float
    trained_mean_tokens: float
    sampled_max_tokens: int
    trained_max_tokens: int
    truncated_share: float
    """truncated_share is the share of sampled rollouts at the length cap; 0 where there is none."""


class GroupsEnded(View):
    """GroupsEnded counts groups by how they ended."""

    trained: int
    evicted: int
    discarded: int
    filtered: int
    pruned: int
    cancelled: int
    failed: int


class Waste(View):
    """Waste says what became of the response tokens made, by how their rollout's attempt ended within the window. Tokens of attempts that have not ended, and of lost engines whose last word is missing, are in none."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"groups_ended": GroupsEnded}

    trained_tokens: int
    """trained_tokens were trained at least once; each counts once."""
    evicted_tokens: int
    """evicted_tokens made room in a full queue, discarded_tokens exceeded the staleness budget, filtered_tokens were of groups that teach nothing."""
    discarded_tokens: int
    filtered_tokens: int
    pruned_tokens: int
    """pruned_tokens were made by rollouts that a rule on the rollout stopped, and cancelled_tokens by those no longer wanted. failed_tokens were made by rollouts that failed, or whose group did."""
    cancelled_tokens: int
    failed_tokens: int
    wasted_share: float
    """wasted_share is the share of all these that was not trained."""
    groups_ended: GroupsEnded
    """groups_ended counts groups by how they ended."""
    pruned_rollouts: int
    """pruned_rollouts, redundant_rollouts (cancelled because their group had enough) and those of surplus groups (cancelled because the batch had enough), with the groups themselves."""
    redundant_rollouts: int
    surplus_groups: int
    surplus_rollouts: int


class Partial(View):
    """Partial says what interruptions and switches of weights do to rollouts."""

    interruptions: int
    """interruptions is how often a rollout was taken out of its slot with its tokens, resumed how often one was put back. limited_rollouts could not be, as often interrupted as may be."""
    resumed: int
    limited_rollouts: int
    backlog_mean: float
    """Backlog is how many stand interrupted: over time, at most, and at the end."""
    backlog_max: int
    backlog_end: int
    resumed_ratio: float
    """resumed_ratio is the share of scored rollouts that had been interrupted with tokens. A rollout has one span more than interruptions."""
    spans_mean: float
    spans_max: int
    version_spans_mean: float
    """version_spans_mean and version_spans_max count runs of tokens of one version in a scored rollout; 0 where the driver does not say."""
    version_spans_max: int
    state_lag_mean: float
    """state_lag_mean and state_lag_max are by how many versions the environment's state of a resumed rollout was older than what it was resumed under. reward_resumed and reward_fresh are the mean rewards of resumed and other rollouts of complete groups; 0 where there is none."""
    state_lag_max: int
    reward_resumed: float
    reward_fresh: float
    partial_rollouts: int
    """partial_rollouts are trained rollouts between whose start and end the version served changed, interrupted for it or not. partial_ratio is their share, version_span_max the largest such change. Under PolicyReplay a rollout counts once for each step on it."""
    partial_ratio: float
    version_span_max: int
    stale_groups: int
    """stale_groups and stale_rollouts were trained after a weight sync that followed their end: staleness by the last version, as verl counts it."""
    stale_rollouts: int


class Filters(View):
    """Filters is the share of groups that each filter let pass of those that reached it, in the order in which they are applied. It is 1 where there is none."""

    verdict: float
    zero_advantage: float
    solve_rate: float


class Reuse(View):
    """Reuse is how often a group had been trained when it was given up."""

    mean: float
    max: int


class Signal(View):
    """Signal says what complete groups have to teach, filtered ones included."""

    solve_rate: float
    """solve_rate is the share of their rollouts that were solved. all_solved_share and none_solved_share are of groups; all are 0 where nothing at all was solved, as where the environment never says so."""
    all_solved_share: float
    none_solved_share: float


class MeanMax(View):
    """MeanMax is a mean and the largest value."""

    mean: float
    max: float


class Latency(View):
    """Latency is how long a scored rollout took from its attempt's start on, and for what: means, in seconds. The parts add up to end_to_end_s. A driver that does not say more splits the time in slots into decode and environment."""

    end_to_end_s: float
    queue_s: float
    prefill_s: float
    decode_s: float
    sandbox_wait_s: float
    sandbox_start_s: float
    tool_wait_s: float
    tool_s: float
    environment_s: float
    verifier_wait_s: float
    verifier_s: float
    scorer_wait_s: float | None
    """scorer_wait_s and scorer_s are left out where nothing scores."""
    scorer_s: float | None
    interrupted_s: float


class Services(View):
    """Services says what the services around the engines did in the measured window. All of it is 0 where the driver has none."""

    tool_calls_per_rollout: float
    """tool_calls_per_rollout is the mean over scored rollouts, of calls that succeeded; tool_failures counts tries that did not."""
    tool_failures: int
    sandboxes_live_mean: float
    """sandboxes_live_mean and sandboxes_live_max count sandboxes that start, run or wait for their rollout to be resumed."""
    sandboxes_live_max: int
    sandbox_starts: int
    """sandbox_starts counts start-ups that ended; sandbox_failures those that failed, sandbox_timeouts those that took too long; sandbox_error_rate is the share of both."""
    sandbox_failures: int
    sandbox_timeouts: int
    sandbox_error_rate: float
    sandboxes_lost: int
    """sandboxes_lost counts those that died under their rollout."""
    sandbox_start_max_s: float
    """sandbox_start_max_s is the longest start-up, its wait for a starter included, in seconds."""
    validations: int
    """validations is how often the policy was validated, validation_s how long that took in all, in seconds, validation_share its share of the window."""
    validation_s: float
    validation_share: float
    engines_lost: int
    """engines_lost counts losses, engine_down_ratio is the share of all engines' time in which one was gone."""
    engine_down_ratio: float
    prefix_hit: float | None
    """prefix_hit is the share of contexts' tokens that engines found in their caches as rollouts came to them, warm-up included. It is left out where no cache is modelled."""


class Failures(View):
    """Failures counts rollout attempts that failed, by why."""

    engine: int
    """engine: it failed or was lost. Environment: a tool, a sandbox or a verifier failed. Timeout: a limit on time was reached. Other: anything else."""
    environment: int
    timeout: int
    other: int
    data: int | None
    """data: the task itself cannot be played or judged."""
    scorer: int | None
    """scorer: no teacher or reference would score the rollout."""


class Control(View):
    """Control says what a controller did in the measured window."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"last": Move, "settings": ControlSetting}

    state: str
    """state at its end: settling, keeping, correcting, unreachable or silent."""
    target_mean: float | None
    """target_mean, target_share, within and of are the goal, window the train steps it is measured over."""
    target_share: float | None
    within: int | None
    of: str | None
    window: int
    measured_mean: float
    """measured_mean and measured_share are over the last window, -1 while nothing is known."""
    measured_share: float
    steps: int
    """steps counts train steps that were judged, and held_steps those with the goal held over the window that ended with them. held_batches counts those whose own batch met it, which is stricter."""
    held_steps: int
    held_batches: int
    unreachable_steps: int
    """unreachable_steps counts those that ended with the goal out of reach, silences how often no measurement came."""
    silences: int
    nearest: float | None
    """nearest and binding say what can be reached at best where the goal cannot, and what binds."""
    binding: str | None
    moves: int
    """moves counts changes of settings, reasons those by why, last the newest of them in order."""
    reasons: dict[str, int]
    last: list[Move]
    settings: list[ControlSetting]
    """settings are those that may move."""


class SeriesPoint(View):
    """seriesPoint is one train step of a simulation's series, which predict/experiment writes by hand."""

    step: int
    time_s: float
    """time_s is when the step ended, period_s since the step before, train_s the step alone."""
    period_s: float
    train_s: float
    staleness: float
    """staleness is the mean of the step's groups in versions, pqs and iqs its two parts."""
    pqs: float
    iqs: float
    staleness_max: int
    token_staleness: float
    trained_tokens: int
    trainer_idle_ratio: float
    """trainer_idle_ratio and rollout_idle_ratio are shares of the period."""
    rollout_idle_ratio: float
    queue_groups: int
    """queue_groups and backlog_rollouts are as the step began."""
    backlog_rollouts: int
    control: dict[str, Any]
    """control is the controller after the step, absent without a target."""


class Ledger(View):
    """Ledger counts rollout attempts by state. Admitted is the sum of all others: every attempt is somewhere, and ends once. The zero value is the empty ledger."""

    admitted: int
    """admitted counts attempts ever started."""
    in_flight: int
    """in_flight counts attempts at an engine or in their environment."""
    waiting: int
    """waiting counts scored rollouts whose group is not ready or is kept out of a full queue."""
    queued: int
    """queued counts rollouts of groups in the queue."""
    leased: int
    """leased counts rollouts of the batch at the trainer."""
    trained: int
    """trained counts rollouts that a train step consumed."""
    evicted: int
    """evicted counts rollouts that a full queue dropped."""
    discarded: int
    """discarded counts rollouts past the staleness budget."""
    filtered: int
    """filtered counts rollouts of groups that teach nothing."""
    pruned: int
    """pruned counts rollouts stopped early by a rule on the rollout, and the scored ones of groups that this ended."""
    cancelled: int
    """cancelled counts attempts stopped in flight because their group was no longer wanted."""
    failed: int
    """failed counts attempts that failed, retried or not."""


class Unsettled(View):
    """Unsettled says why one mean has not settled."""

    figure: str
    """figure is staleness, pqs, iqs or period_s."""
    cause: str
    """cause is short, transient, trend or correlated."""
    why: str
    """why says it in a sentence."""
    more_steps: float | None
    """more_steps is about how many more measured steps it takes; null where the series shows no end."""


class Warmup(View):
    """Warmup says what was left out at the beginning of a simulation."""

    steps: int
    """steps is the number of train steps left out, automatic that the document did not say it."""
    automatic: bool
    tries: int
    """tries is how many warm-ups were tried, each longer than the one before."""
    closed_form_steps: float
    """closed_form_steps is how many steps the queue needs to settle by the closed form."""
    detected_steps: int
    """detected_steps is where MSER-5 sees the transient of staleness and period end, from the first step on."""


class ExperimentConfidence(View):
    """Confidence holds 95 % intervals of means; null where the window is too short for one."""

    staleness_mean_95: list[float] | None
    pqs_mean_95: list[float] | None
    iqs_mean_95: list[float] | None
    token_staleness_mean_95: list[float] | None
    period_s_mean_95: list[float] | None
    trainer_idle_ratio_95: list[float] | None
    method: str
    """method is batch means, of Batches batches of batch_steps train steps each for the staleness. independent_steps is how many independent steps that mean is worth; null where every step is the same."""
    batches: int
    batch_steps: int
    independent_steps: float | None


class Predicted(View):
    """Predicted is the closed form beside a simulation."""

    staleness_mean: float | None
    pqs: float | None
    iqs: float | None
    period_s: float | None
    corrected_staleness_mean: float | None
    """corrected_staleness_mean and corrected_period_s hold near utilization 1, too."""
    corrected_period_s: float | None
    warnings: list[str]


class Part(View):
    """Part is a source with what it adds."""

    source: str
    versions: float
    """versions is the mean over trained groups, share that of the mean staleness, 0 to 1."""
    share: float


class Idle(View):
    """Idle is what somebody waited for, as shares of the time, 0 to 1."""

    starved: float
    """starved: no batch was ready, or too few slots were free for a whole group. Syncing: weights were being switched, and that kept it from going on. Validating: the policy was evaluated. Paused: a rule of the loop wanted nothing started (a full queue, hold, admission, the end of the run). Blocked: an engine was gone, or came back and had no weights yet; for the trainer, all were."""
    syncing: float
    validating: float
    paused: float
    blocked: float
    total: float
    """total is the idle ratio, which the others add up to."""


class Standing(View):
    """Standing is the share of the engines' slots, by time, that hold a rollout which stands still."""

    syncing: float
    """syncing: its engine switches weights. Validating: its engine evaluates the policy."""
    validating: float


class Little(View):
    """Little holds the discrete form of Little's law: the staleness of all trained groups is the number of updates that they lived through. The compared counts are kept apart."""

    staleness: int
    """staleness is the sum over trained groups, lived the sum over updates of the groups then open or queued that were trained later."""
    lived: int
    mismatch: float
    """mismatch is |Staleness − Lived|/max(Lived, 1). Over 0.01 it is a finding."""


class AttributionSummary(View):
    """Summary is the attribution of a window."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"parts": Part, "trainer_idle": Idle, "engines_idle": Idle, "engines_standing": Standing, "little": Little}

    groups: int
    """groups were trained in it."""
    staleness_mean: float
    """staleness_mean in versions; the parts add up to it. Parts are in the order of Source."""
    parts: list[Part]
    dominant: str
    """dominant is the largest part, share its share, ties others within 5 % of it."""
    share: float
    ties: list[str]
    trainer_idle: Idle
    """trainer_idle and engines_idle say what they waited for."""
    engines_idle: Idle
    engines_standing: Standing
    """engines_standing is time of engines in which they are not idle, but do not generate either."""
    little: Little


class Bin(View):
    """Bin is one of a histogram: values from Low up to the next bin's Low."""

    low: float
    started: float
    """started and trained are shares of each."""
    trained: float


class Property(View):
    """Property compares the distribution of one property of rollouts."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"histogram": Bin}

    name: str
    """name of the property, unit of its figures."""
    unit: str
    started: int
    """started and trained are rollouts; a trained one counts as often as it was trained."""
    trained: int
    started_mean: float
    """started_mean and trained_mean, and the second over the first with its 95 % interval: a jackknife over batches of train steps, since steps are correlated. The interval is [0, 0] where there are too few."""
    trained_mean: float
    ratio: float
    ratio_95: list[float]
    distance: float
    """distance is Kolmogorov's and Smirnov's: the largest difference between the cumulative distributions of the trained and the untrained. p is its probability where groups are chosen regardless of this property; 1 where there is no test. Both samples count as that many independent values as siblings, who are alike, are worth: Effect rollouts are worth one."""
    p: float
    design_effect: float
    histogram: list[Bin]
    """histogram of started and trained, for a picture."""
    found: bool
    """found says that a bias was found at 95 % confidence; Verdict says what, in words."""
    conclusion: str


class Cell(View):
    """Cell is one category: groups started and, of them, trained."""

    name: str
    started_groups: int
    trained_groups: int
    trained_share: float
    """trained_share is the second over the first."""


class Categories(View):
    """categories compares how large a share of its groups each category has trained."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"cells": Cell}

    name: str
    cells: list[Cell]
    """cells are the categories in order. Of prompts, which may be many, they are at most 10. Those come first that are trained least often for their starts, the most significant before the others."""
    categories: int
    """categories is how many there are with started groups, never_trained how many of them have none trained."""
    never_trained: int
    chi_square: float
    """chi_square with Freedom degrees tests that the same share of every category's groups is trained. p is its probability then, 1 where there is no test. pooled_cells with few groups were tested as one."""
    degrees_of_freedom: int
    p: float
    pooled_cells: int
    ratio: float | None
    """ratio is the trained over the started mean, where the category is a number; else 0."""
    found: bool
    """found says that a bias was found at 95 % confidence; Verdict says what, in words."""
    conclusion: str


class Order(View):
    """Order is length against the order of groups within a batch, which is that of their selection. A trainer that splits its batch into several updates sees it."""

    groups: int
    """groups is how many were leased."""
    slope: float
    """slope is the growth of the mean length from the first to the last of a batch, as a share of the mean. It is fitted by least squares. Its 95 % interval is over batches of steps; [0, 0] where there are too few."""
    slope_95: list[float]
    correlation: float
    """correlation is that of a group's mean length and its position."""
    mean_tokens: list[float]
    """mean_tokens by tenth of the batch, by group of a smaller one; the first selected first."""
    found: bool
    """found says that the slope's interval leaves out 0; Verdict says it in words."""
    conclusion: str


class Report(View):
    """Report is what a run's choice of groups did to what it trained on."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"length": Property, "environment": Property, "prompt": Categories, "level": Categories, "solve_rate": Categories, "order": Order}

    groups: int
    """groups and rollouts were opened in the window and have ended; trained_groups were trained at least once. Means and intervals leave the last steps out, from the first of which a group still lives; histograms, categories and tests of them do not."""
    trained_groups: int
    rollouts: int
    censored_share: float
    """censored_share is the share of started rollouts whose length never became known: cancelled, pruned or failed where lengths are not known beforehand. A bias among them is not seen."""
    batches: int
    """batches is how many batches of consecutive train steps the intervals rest on, 0 for no intervals."""
    length: Property | None
    """length of responses in tokens, environment time in seconds; nil where none is known."""
    environment: Property | None
    prompt: Categories | None
    """prompt, level and solve_rate are nil where groups have none. The solve rate is of groups whose rollouts were all scored."""
    level: Categories | None
    solve_rate: Categories | None
    order: Order | None
    """order is length against the order in which groups enter a batch; nil for batches of one group."""
    conclusions: list[str]
    """conclusions are those of all parts, one sentence each."""


class Simulation(Result):
    """The document of `headway simulate --json`.

    Simulation is what headway simulate --json prints.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"staleness": MetricsStaleness, "pqs": Mean, "iqs": Mean, "token_staleness": Mean, "period_s": Mean, "throughput": Throughput, "length": Length, "step_s": Mean, "sync_s": Mean, "waste": Waste, "partial": Partial, "filter_acceptance": Filters, "reuse": Reuse, "signal": Signal, "rollout_s": MeanMax, "latency": Latency, "services": Services, "failures": Failures, "control": Control, "series": SeriesPoint, "ledger": Ledger, "unsettled": Unsettled, "warmup": Warmup, "confidence": ExperimentConfidence, "predicted": Predicted, "attribution": AttributionSummary, "bias": Report}
    _rows: ClassVar[str] = "series"

    staleness: MetricsStaleness
    pqs: Mean
    iqs: Mean
    token_staleness: Mean
    utilization: float
    """utilization is ρ: rollouts produced per second over rollouts a busy trainer consumes per second, before any filter."""
    period_s: Mean
    trainer_idle_ratio: float
    trainer_absent_ratio: float | None
    """trainer_absent_ratio is the share of the time in which there was no trainer (Attendance): it neither trained nor waited."""
    rollout_idle_ratio: float
    throughput: Throughput
    length: Length
    tail_multiplier: float
    """tail_multiplier is E[longest rollout of a group]/E[rollout] of measured durations; acceptance the share of ready groups that were not filtered."""
    acceptance: float
    step_s: Mean
    """step_s is the mean train step alone, in seconds."""
    sync_s: Mean
    """sync_s is the mean time from a version to its being served by every engine, in seconds; 0 where no sync ended."""
    dominant: str
    """dominant is the larger part of the staleness: "pqs" or "iqs"."""
    steps: int
    """steps is how many train steps the window holds, window_s how long it is in seconds."""
    window_s: float
    waste: Waste
    """waste, partial, filter_acceptance, reuse and signal say what became of what was made."""
    partial: Partial
    filter_acceptance: Filters
    reuse: Reuse
    signal: Signal
    trainer_idle_s: float
    """trainer_idle_s is the time in which no train step ran, rollout_still_s that in which no slot held a rollout. slot_idle_s is the mean over slots of the time in which it held none and its engine was there; all in seconds."""
    rollout_still_s: float
    slot_idle_s: float
    rollout_s: MeanMax
    """rollout_s is the time a scored rollout spent in slots, in seconds: the mean, and the longest of complete groups."""
    groups_ready: int
    """groups_ready counts groups whose last rollout was scored, filtered ones included; syncs the weight syncs since the start of the run, not of the window."""
    syncs: int
    latency: Latency
    """latency is how long a scored rollout took, and for what."""
    services: Services
    """services says what sandboxes, tools, validations and lost engines did."""
    failures: Failures
    """failures counts attempts that failed, by why."""
    control: Control | None
    """control is what the controller did; nil without a goal."""
    series: list[SeriesPoint]
    """series has a point a train step, warm-up included."""
    ledger: Ledger
    settled: bool
    """settled says that the means have; unsettled which have not, and why."""
    unsettled: list[Unsettled]
    warmup: Warmup
    """warmup is what was left out at the beginning."""
    confidence: ExperimentConfidence
    """confidence holds the intervals of the means, in place of the summary's."""
    predicted: Predicted
    """predicted is the closed form of the same document, null where there is none."""
    events: int
    """events are rollout completions and train-step ends, warm-up included."""
    events_per_s: float
    wall_s: float
    attribution: AttributionSummary
    """attribution says where every version of staleness, and the idle time of both sides, came from; see docs/attribution.md."""
    bias: Report | None
    """bias compares what was trained with what was started, where that was asked."""
    verl: dict[str, float]
    """verl are figures of the measured window under verl's names."""


class PointMean(View):
    """pointMean is a mean with its 95 % interval: over seeds by Student's t or, of one seed, by batch means. Mean is nil where it has not settled, interval_95 where there is none."""

    mean: float | None
    standard_error: float
    interval_95: list[float] | None


class Point(View):
    """Point sums the seeds of one setting up."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"staleness": PointMean, "period_s": PointMean, "predicted": Predicted}

    set: dict[str, str]
    seeds: int
    settled: bool
    """settled: the means of at least nine in ten seeds have settled. Why says what has not."""
    unsettled: str | None
    error: str | None
    staleness: PointMean
    period_s: PointMean
    predicted: Predicted


class GridRun(View):
    """gridRun is one simulation of a grid, or one seed: that of a single simulation without its series and clock."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"staleness": MetricsStaleness, "pqs": Mean, "iqs": Mean, "token_staleness": Mean, "period_s": Mean, "throughput": Throughput, "length": Length, "step_s": Mean, "sync_s": Mean, "waste": Waste, "partial": Partial, "filter_acceptance": Filters, "reuse": Reuse, "signal": Signal, "rollout_s": MeanMax, "latency": Latency, "services": Services, "failures": Failures, "control": Control, "series": SeriesPoint, "ledger": Ledger, "unsettled": Unsettled, "warmup": Warmup, "confidence": ExperimentConfidence, "predicted": Predicted, "attribution": AttributionSummary, "bias": Report}

    seed: int
    set: dict[str, str]
    error: str | None
    """error says why it was not simulated to its end; there is nothing else then."""
    staleness: MetricsStaleness | None
    pqs: Mean | None
    iqs: Mean | None
    token_staleness: Mean | None
    utilization: float | None
    """utilization is ρ: rollouts produced per second over rollouts a busy trainer consumes per second, before any filter."""
    period_s: Mean | None
    trainer_idle_ratio: float | None
    trainer_absent_ratio: float | None
    """trainer_absent_ratio is the share of the time in which there was no trainer (Attendance): it neither trained nor waited."""
    rollout_idle_ratio: float | None
    throughput: Throughput | None
    length: Length | None
    tail_multiplier: float | None
    """tail_multiplier is E[longest rollout of a group]/E[rollout] of measured durations; acceptance the share of ready groups that were not filtered."""
    acceptance: float | None
    step_s: Mean | None
    """step_s is the mean train step alone, in seconds."""
    sync_s: Mean | None
    """sync_s is the mean time from a version to its being served by every engine, in seconds; 0 where no sync ended."""
    dominant: str | None
    """dominant is the larger part of the staleness: "pqs" or "iqs"."""
    steps: int | None
    """steps is how many train steps the window holds, window_s how long it is in seconds."""
    window_s: float | None
    waste: Waste | None
    """waste, partial, filter_acceptance, reuse and signal say what became of what was made."""
    partial: Partial | None
    filter_acceptance: Filters | None
    reuse: Reuse | None
    signal: Signal | None
    trainer_idle_s: float | None
    """trainer_idle_s is the time in which no train step ran, rollout_still_s that in which no slot held a rollout. slot_idle_s is the mean over slots of the time in which it held none and its engine was there; all in seconds."""
    rollout_still_s: float | None
    slot_idle_s: float | None
    rollout_s: MeanMax | None
    """rollout_s is the time a scored rollout spent in slots, in seconds: the mean, and the longest of complete groups."""
    groups_ready: int | None
    """groups_ready counts groups whose last rollout was scored, filtered ones included; syncs the weight syncs since the start of the run, not of the window."""
    syncs: int | None
    latency: Latency | None
    """latency is how long a scored rollout took, and for what."""
    services: Services | None
    """services says what sandboxes, tools, validations and lost engines did."""
    failures: Failures | None
    """failures counts attempts that failed, by why."""
    control: Control | None
    """control is what the controller did; nil without a goal."""
    series: list[SeriesPoint]
    """series has a point a train step, warm-up included."""
    ledger: Ledger | None
    settled: bool | None
    """settled says that the means have; unsettled which have not, and why."""
    unsettled: list[Unsettled]
    warmup: Warmup | None
    """warmup is what was left out at the beginning."""
    confidence: ExperimentConfidence | None
    """confidence holds the intervals of the means, in place of the summary's."""
    predicted: Predicted | None
    """predicted is the closed form of the same document, null where there is none."""
    events: int | None
    """events are rollout completions and train-step ends, warm-up included."""
    events_per_s: float | None
    wall_s: float | None
    attribution: AttributionSummary | None
    """attribution says where every version of staleness, and the idle time of both sides, came from; see docs/attribution.md."""
    bias: Report | None
    """bias compares what was trained with what was started, where that was asked."""
    verl: dict[str, float]
    """verl are figures of the measured window under verl's names."""


class Grid(Result):
    """The document of `headway simulate --grid, --seeds --json`.

    gridReport is what headway simulate --json prints of a grid, or of several seeds.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"points": Point, "runs": GridRun}
    _rows: ClassVar[str] = "points"

    points: list[Point]
    """points has one point a setting, in the order of the grid."""
    runs: list[GridRun]
    """runs has every simulation, of every seed."""
    events: int
    """events of all simulations; events_per_s is null where no time was seen to pass."""
    events_per_s: float | None
    wall_s: float


class Machine(View):
    """Machine is what the search knows of the GPUs, from rooflines or measurements."""

    model: str | None
    """model and gpu name the presets behind the figures; "" where they were measured."""
    gpu: str | None
    gpus: int
    """gpus is how many there are for both sides."""
    gpus_per_replica: int
    """gpus_per_replica is the size of one engine: the rollout side comes in whole ones."""
    train_gpus_min: int
    """train_gpus_min is the fewest the trainer's memory allows, train_gpus_unit by how many it grows."""
    train_gpus_unit: int
    train_floor: str
    """train_floor says what the floor is made of."""
    slots_max_per_replica: int
    """slots_max_per_replica is how many rollouts' caches fit into one replica; 0 for no known limit."""
    slots_per_replica: int | None
    """slots_per_replica pins the rollouts at once on a replica: the only number that was measured; 0 for none."""
    prefill_s: float
    """prefill_s is the time in which a replica reads one rollout's prompt and its tools' outputs and decodes nothing, in seconds."""
    read_s: float | None
    """read_s is that time where a slot or a pool reads for it and the replica decodes on, in seconds."""
    prompt_tokens: float
    """prompt_tokens is the part of a sequence that a train step reads beside the response: the prompt and the results of tools."""
    train_tokens_per_s_per_gpu: float
    """train_tokens_per_s_per_gpu is the trainer's speed, prompt and response together: the most that large batches reach."""
    notes: list[str]
    """notes say where the figures are from and which assumptions they make."""


class Workload(View):
    """Workload repeats what was understood of the document's."""

    mean_tokens: float
    longest_tokens: int
    group_size: int
    tail_multiplier: float
    prompt_tokens: float
    environment_s: float
    acceptance: float


class Budget(View):
    """Budget is what a plan must keep."""

    staleness_mean: float | None
    """staleness_mean is the largest mean staleness, in versions; unset for no such bound, but 4 where no bound of the budget is given."""
    staleness_p95: int | None
    """staleness_p95 is the largest 95 % quantile, in versions; unset for no such bound."""
    step_s: float | None
    """step_s is the longest time between updates, in seconds; unset for no such bound."""
    cost_per_step: float | None
    """cost_per_step is the largest price of a step; unset for no such bound."""
    waste_share: float | None
    """waste_share is the largest share of generated groups that may be dropped; unset for no such bound."""
    length_bias: float | None
    """length_bias is how far the mean length trained on may be from the mean sampled, as a share; unset for no such bound."""


class Prices(View):
    """Prices are what a plan multiplies hours with."""

    gpu_hour: float | None
    """gpu_hour is the price of one GPU for an hour, on both sides."""
    rollout_gpu_hour: float | None
    """rollout_gpu_hour is that of a rollout GPU, where it differs."""
    cpu_hour: float | None
    """cpu_hour is the price of one sandbox CPU for an hour."""
    cpus_per_sandbox: float | None
    """cpus_per_sandbox is what one rollout's sandbox holds while the rollout runs. Default 0."""
    hosted_per_million_tokens: float | None
    """hosted_per_million_tokens is the price of a hosted engine's million generated tokens, to be compared with."""
    currency: str | None
    """currency is how prices are printed. Default USD."""


class Relaxation(View):
    """Relaxation is a bound of a budget that no setting keeps together with the others."""

    key: str
    bound: float
    needed: float | None
    """needed is the least value that some setting reaches with every other bound kept; null where even without this bound no setting keeps the others."""
    text: str


class Figures(View):
    """Figures are what a setting comes to, predicted or simulated."""

    staleness_mean: float
    """Staleness in versions: mean and quantiles."""
    staleness_p50: int
    staleness_p95: int
    staleness_p99: int
    pqs: float
    """pqs and iqs are its parts."""
    iqs: float
    utilization: float
    """utilization is ρ, rollout over train throughput."""
    period_s: float
    """period_s is the time between two updates, in seconds."""
    period_per_rollout_s: float
    """period_per_rollout_s is t/B, period_per_root_batch_s t/√B and update_s t/√B_eff, the noise-adjusted update time, in seconds."""
    period_per_root_batch_s: float
    update_s: float
    effective_batch_rollouts: float
    """effective_batch_rollouts is B_eff, the independent rollouts that a batch is worth."""
    clip_fraction: float | None
    """clip_fraction is the share of tokens expected outside the trainer's band; 0 where modelled.train.drift_nats_per_version is not given."""
    waste_share: float
    """waste_share is the share of generated groups that are never trained on."""
    length_bias: float
    """length_bias is mean trained over mean sampled length, less 1."""
    cost_per_step: float
    """cost_per_step is the price of an update, cost_per_million_trained_tokens of a million trained response tokens."""
    cost_per_million_trained_tokens: float
    cost_per_update: float
    """cost_per_update is the price of a noise-adjusted update: cost per step over √B_eff."""


class Simulated(View):
    """Simulated are a candidate's figures by the simulator."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"trainer_idle": Idle, "engines_idle": Idle}

    staleness_mean: float
    """Staleness in versions: mean and quantiles."""
    staleness_p50: int
    staleness_p95: int
    staleness_p99: int
    pqs: float
    """pqs and iqs are its parts."""
    iqs: float
    utilization: float
    """utilization is ρ, rollout over train throughput."""
    period_s: float
    """period_s is the time between two updates, in seconds."""
    period_per_rollout_s: float
    """period_per_rollout_s is t/B, period_per_root_batch_s t/√B and update_s t/√B_eff, the noise-adjusted update time, in seconds."""
    period_per_root_batch_s: float
    update_s: float
    effective_batch_rollouts: float
    """effective_batch_rollouts is B_eff, the independent rollouts that a batch is worth."""
    clip_fraction: float | None
    """clip_fraction is the share of tokens expected outside the trainer's band; 0 where modelled.train.drift_nats_per_version is not given."""
    waste_share: float
    """waste_share is the share of generated groups that are never trained on."""
    length_bias: float
    """length_bias is mean trained over mean sampled length, less 1."""
    cost_per_step: float
    """cost_per_step is the price of an update, cost_per_million_trained_tokens of a million trained response tokens."""
    cost_per_million_trained_tokens: float
    cost_per_update: float
    """cost_per_update is the price of a noise-adjusted update: cost per step over √B_eff."""
    staleness_mean_95: list[float]
    """staleness_mean_95 and period_s_95 are 95 % confidence intervals."""
    period_s_95: list[float]
    trainer_idle_ratio: float
    """trainer_idle_ratio and rollout_idle_ratio are the shares of time that each side waited."""
    rollout_idle_ratio: float
    trainer_idle: Idle | None
    """trainer_idle and engines_idle say what each side waited for, as headway simulate does: of the recommended setting alone."""
    engines_idle: Idle | None
    binding: str
    """binding is the side that limits, as a simulation's throughput has it."""
    steps: int
    """steps and warmup_steps are the train steps simulated."""
    warmup_steps: int
    scale: float | None
    """scale is by what a larger fleet's batch and rollouts at once were divided for the simulation; absent for none."""
    settled: bool
    """settled is false where the staleness still drifts, so that its mean is worth little; doubt says why. Finalists are simulated again, twice as long, before that is left standing."""
    doubt: str | None


class Candidate(View):
    """Candidate is a setting with what is known of it."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"predicted": Figures, "simulated": Simulated}

    rollout_gpus: int
    """rollout_gpus and train_gpus are the split; GPUs beyond their sum are not rented."""
    train_gpus: int
    replicas: int
    """replicas are the engines, slots_per_replica the rollouts at once on each."""
    slots_per_replica: int
    batch_rollouts: int
    """batch_rollouts is B, queue_factor q."""
    queue_factor: float | None
    policy: str
    """policy is the queue's, or synchronous for that schedule."""
    select: str | None
    """select and hold are the queue's selection order and θ."""
    hold: float | None
    max_staleness: int | None
    """max_staleness, eta, staleness_threshold and partial_rollout are of policies max, bounded and threshold."""
    eta: float | None
    staleness_threshold: float | None
    partial_rollout: bool | None
    sync_every: int
    """sync_every is the train steps per sync, verl's trigger_parameter_sync_step."""
    concurrency_rollouts: int
    """concurrency_rollouts is C."""
    decode_tokens_per_s: float
    """decode_tokens_per_s is the speed of one slot, prefill counted in; step_s the train step alone; sync_s one weight sync."""
    step_s: float
    sync_s: float
    predicted: Figures | None
    """predicted are the closed form's figures; nil where no closed form covers the setting, and uncovered says why."""
    uncovered: str | None
    simulated: Simulated | None
    """simulated are the simulator's, nil for what was not simulated."""


class Alternative(View):
    """Alternative is another setting worth knowing, by what it is better at."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"predicted": Figures, "simulated": Simulated}

    name: str
    """name is faster, fresher, cheaper or synchronous."""
    text: str
    """text states the gain and the cost, against the recommended setting."""
    rollout_gpus: int
    """rollout_gpus and train_gpus are the split; GPUs beyond their sum are not rented."""
    train_gpus: int
    replicas: int
    """replicas are the engines, slots_per_replica the rollouts at once on each."""
    slots_per_replica: int
    batch_rollouts: int
    """batch_rollouts is B, queue_factor q."""
    queue_factor: float | None
    policy: str
    """policy is the queue's, or synchronous for that schedule."""
    select: str | None
    """select and hold are the queue's selection order and θ."""
    hold: float | None
    max_staleness: int | None
    """max_staleness, eta, staleness_threshold and partial_rollout are of policies max, bounded and threshold."""
    eta: float | None
    staleness_threshold: float | None
    partial_rollout: bool | None
    sync_every: int
    """sync_every is the train steps per sync, verl's trigger_parameter_sync_step."""
    concurrency_rollouts: int
    """concurrency_rollouts is C."""
    decode_tokens_per_s: float
    """decode_tokens_per_s is the speed of one slot, prefill counted in; step_s the train step alone; sync_s one weight sync."""
    step_s: float
    sync_s: float
    predicted: Figures | None
    """predicted are the closed form's figures; nil where no closed form covers the setting, and uncovered says why."""
    uncovered: str | None
    simulated: Simulated | None
    """simulated are the simulator's, nil for what was not simulated."""


class Constraint(View):
    """Constraint is something a plan must keep, and the cost of keeping it."""

    name: str
    """name is one of staleness_mean, staleness_p95, step_s, cost_per_step, waste_share, length_bias, trainer_memory, whole_units, kv_memory, minimum_batch, gpus."""
    bound: str
    """bound says what it is."""
    relaxed: str
    """relaxed says by how much it was relaxed to see what it costs."""
    objective_ratio: float
    """objective_ratio is the best objective after relaxing over the best before, 1 where nothing is gained."""
    binds: bool
    """binds says that relaxing it gains more than half a percent."""
    to: str
    """to is the split and batch that it would then be."""


class PlanLever(View):
    """Lever is one change of the recommended setting and its effect. It says what it holds fixed, since that decides its sign."""

    name: str
    """name is one of split, batch, queue_factor, rule, concurrency, sync_every, sync_time, tail, gpus."""
    change: str
    """change says what is turned, from and to."""
    holds_fixed: str
    """holds_fixed says what stays while it is turned."""
    staleness_mean: float
    """staleness_mean and staleness_p95 are those after the change, in versions."""
    staleness_p95: int
    staleness_change: float
    """staleness_change is the mean's change in versions, the ratios are after over before."""
    period_ratio: float
    update_ratio: float
    cost_per_update_ratio: float
    keeps_budget: bool
    """keeps_budget says that the budget is kept after the change."""
    gpus_needed: int | None
    """gpus_needed is how many GPUs the change takes where there are fewer, else 0."""
    basis: str
    """basis is closed form or simulated: both sides of the comparison alike."""
    note: str | None
    """note says what else changes with it; "" for nothing."""


class PlanFinding(View):
    """Finding is a rule of thumb, whether it holds here, and when it fails."""

    name: str
    """name is one of queue_factor_one, rollout_bound, tail, batch_against_staleness."""
    rule: str
    """rule is the rule in a few words."""
    holds: bool
    """holds says whether it holds for this plan; evidence by which figures."""
    evidence: str
    fails_when: str
    """fails_when is the condition under which the rule fails."""


class Mode(View):
    """Mode is the advice on verl's four modes."""

    mode: int
    """mode is 1 to 4 and name verl's name for it."""
    name: str
    settings: str
    """settings are its knobs, why what speaks for it here."""
    why: str


class Async(View):
    """Async says whether asynchrony pays, against the synchronous schedule with every GPU in both phases."""

    pays: bool
    """pays is whether the recommended setting's noise-adjusted update is at least a tenth faster than the synchronous schedule's at its own best batch."""
    speedup: float
    """speedup is that ratio; synchronous_best_batch_rollouts and synchronous_best_update_s are the synchronous schedule's, by closed form."""
    synchronous_best_batch_rollouts: int
    synchronous_best_update_s: float
    synchronous_step_s: float
    """synchronous_step_s is the synchronous step on shared GPUs at the same batch. synchronous_separate_step_s is that on separate ones (0 where it cannot run), period_s the recommended setting's."""
    synchronous_separate_step_s: float
    period_s: float
    step_speedup: float
    """step_speedup is synchronous_step_s over period_s."""
    effect: str
    """effect is what gives or costs most between the two kinds of schedule."""
    text: str
    """text says it in a sentence or two."""


class Hosted(View):
    """Hosted compares generating on rented GPUs with a hosted engine's price."""

    hosted_per_million_tokens: float
    """hosted_per_million_tokens is the hosted price of a million generated tokens. own_per_million_tokens is their cost on the rollout GPUs, idle time and waste included. Sandboxes cost the same either way and are in neither."""
    own_per_million_tokens: float
    cost_per_step: float
    """cost_per_step is a step's with hosted rollouts and the plan's own trainer and sandboxes, of as many generated tokens."""
    cheaper: bool
    """cheaper says that hosted generation is."""
    text: str


class Accuracy(View):
    """Accuracy is how far closed forms were from the simulator on the finalists that have both, as shares of the simulated figure."""

    finalists: int
    """finalists that have both figures."""
    staleness_mean_error: float
    """Mean and largest absolute relative errors."""
    staleness_max_error: float
    period_mean_error: float
    period_max_error: float
    p95_exact: int
    """p95_exact counts the finalists whose p95 agrees, p95_within_one those that are within a version."""
    p95_within_one: int
    regime: str
    """regime of the recommended setting, and where its published error is to be found."""
    source: str


class Reason(View):
    """reason is why settings were left to the simulator, and how many."""

    reason: str
    settings: int


class Searched(View):
    """Searched says what was ranked."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"uncovered": Reason}

    settings: int
    """settings were ranked, predicted of them by closed forms."""
    predicted: int
    simulated: int
    """simulated are those that were simulated, to screen rules and as finalists."""
    splits: int
    """splits, batches_rollouts, queue_factors, slots_per_replica and sync_every are the values tried."""
    batches_rollouts: list[int]
    queue_factors: list[float]
    slots_per_replica: list[int]
    sync_every: list[int]
    thinned: list[str]
    """thinned names the plan's own lists from which values were left out, to keep the search short."""
    uncovered: list[Reason]
    """uncovered counts by reason the settings that no closed form covers."""


class ReplicaSize(View):
    """ReplicaSize is one size of a replica with the best setting that closed forms find for it."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"best": Candidate}

    gpus_per_replica: int
    """gpus_per_replica are those of a replica, slots_max_per_replica the rollouts whose caches it holds."""
    slots_max_per_replica: int
    met: bool
    """met is false where no setting with a closed form keeps the budget."""
    update_ratio: float
    """update_ratio and cost_ratio are the noise-adjusted update's time and price over the first size's; cost_ratio is 0 without prices."""
    cost_ratio: float | None
    best: Candidate
    """best is the setting, by closed form."""


class PlanSetting(View):
    """Setting is one candidate: the values that a plan chooses. Everything else is the problem's."""

    rollout_gpus: int
    """rollout_gpus and train_gpus are the split; GPUs beyond their sum are not rented."""
    train_gpus: int
    replicas: int
    """replicas are the engines, slots_per_replica the rollouts at once on each."""
    slots_per_replica: int
    batch_rollouts: int
    """batch_rollouts is B, queue_factor q."""
    queue_factor: float | None
    policy: str
    """policy is the queue's, or synchronous for that schedule."""
    select: str | None
    """select and hold are the queue's selection order and θ."""
    hold: float | None
    max_staleness: int | None
    """max_staleness, eta, staleness_threshold and partial_rollout are of policies max, bounded and threshold."""
    eta: float | None
    staleness_threshold: float | None
    partial_rollout: bool | None
    sync_every: int
    """sync_every is the train steps per sync, verl's trigger_parameter_sync_step."""


class Next(View):
    """Next is what one more unit of a side would bring: the finite difference of the plan's objective."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"setting": PlanSetting}

    side: str
    """side is rollout or train, gpus the size of one more engine or unit of the trainer."""
    gpus: int
    speedup: float
    """speedup is by what share noise-adjusted updates come more often within the budget; 0 where nothing that was tried is faster."""
    worth_per_hour: float
    """worth_per_hour are those updates at today's cost of one, rent_per_hour is what the unit costs, net_per_hour the difference. All are 0 without prices."""
    rent_per_hour: float
    net_per_hour: float
    cost_per_1000_rollouts_change: float
    """cost_per_1000_rollouts_change is what 1,000 trained rollouts then cost more, with their noise."""
    basis: str
    """basis is closed form or simulated."""
    setting: PlanSetting
    """setting is the setting that would then be best."""


class Answer(View):
    """Answer is a short answer to a question that people ask of a plan."""

    question: str
    """question is one of next_engine, next_trainer, placement, lending, prefill, routing, sandboxes, judges, teachers, cells."""
    value: float
    """value is the figure of it, in the unit that Unit names."""
    unit: str
    text: str


class Uncertain(View):
    """Uncertain is an input without a measurement, with how far it may move the plan."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"setting_low": PlanSetting, "setting_high": PlanSetting}

    input: str
    """input is decoding, training, sync or lengths. Spread is how far off it may be, the standard deviation of its logarithm."""
    spread: float
    update_low: float
    """update_low and update_high are the recommended update's time with the input that far below and above, over its own."""
    update_high: float
    regret: float
    """regret is what keeping the recommended setting then costs against the best one, the greater of both, a broken bound of the budget included. setting_low and setting_high are the best ones."""
    setting_low: PlanSetting
    setting_high: PlanSetting
    measure: str
    """measure is the command or the key that determines it."""


class Plan(Result):
    """The document of `headway plan --json`.

    Plan is what a search found. Its JSON is that of headway plan --json.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"machine": Machine, "workload": Workload, "budget": Budget, "prices": Prices, "shortfall": Relaxation, "recommended": Candidate, "alternatives": Alternative, "binding": Constraint, "levers": PlanLever, "findings": PlanFinding, "mode": Mode, "async": Async, "hosted": Hosted, "accuracy": Accuracy, "frontier": Candidate, "finalists": Candidate, "searched": Searched, "replica_sizes": ReplicaSize, "next_gpus": Next, "answers": Answer, "uncertain": Uncertain}
    _rows: ClassVar[str] = "frontier"

    machine: Machine
    """machine is what the GPUs can do, workload what they are to do."""
    workload: Workload
    budget: Budget
    """budget and prices are the document's; prefer is what was made small."""
    prices: Prices
    prefer: str
    budget_assumed: str | None
    """budget_assumed says what stands in for a budget that was not given, "" where one was."""
    price_assumed: bool | None
    """price_assumed is true where prices.gpu_hour is the built-in example's, since the user gave none."""
    met: bool
    """met is false where no setting keeps the budget: Recommended is then the closest."""
    shortfall: list[Relaxation]
    """shortfall says, where the budget is not met, which bound to relax and by how much."""
    recommended: Candidate
    """recommended is the setting to use, why what speaks for it."""
    why: list[str]
    alternatives: list[Alternative]
    """alternatives lie on both sides of it."""
    binding: list[Constraint]
    """binding are the constraints by their cost, the most expensive first, among settings with a closed form. Where the recommended one has no closed form, they are not its own."""
    levers: list[PlanLever]
    """levers are what single changes of the recommended setting would do."""
    findings: list[PlanFinding]
    """findings are rules of thumb with the conditions under which they fail."""
    mode: Mode
    """mode is the advice on verl's four modes."""
    async_: Async
    """async compares with the synchronous schedule."""
    hosted: Hosted | None
    """hosted compares with a hosted engine's price; nil where none was given."""
    accuracy: Accuracy
    """accuracy is the error of the closed form against the simulated finalists."""
    frontier: list[Candidate]
    """frontier are the settings that no other beats in both staleness and objective; finalists those simulated."""
    finalists: list[Candidate]
    searched: Searched
    """searched says what was ranked."""
    replica_sizes: list[ReplicaSize]
    """replica_sizes compares the sizes of a replica that were tried, the best first; absent where the size was not searched."""
    next_gpus: list[Next]
    """next_gpus values one more engine, then one more unit of the trainer."""
    answers: list[Answer]
    """answers are short ones to questions that people ask: placement, prefill, routers, sandboxes, judges, cells."""
    uncertain: list[Uncertain]
    """uncertain are the inputs without a measurement. The first is the one to measure: it moves the plan most."""
    warnings: list[str]
    """warnings say what the plan leaves out."""


class DoctorFinding(View):
    """Finding is one thing a config's owner should know."""

    severity: str
    """severity says how much it matters."""
    code: str
    """code names the kind of finding; docs/reference/doctor.md lists all of them."""
    key: str
    """key is the dotted key it is about, such as queue.max_staleness."""
    file: str | None
    """file and line are where the document or an override gave the key, or the section around it. They are empty and 0 where it came by default."""
    line: int | None
    scenarios: list[str]
    """scenarios are the public issues that the finding is known by (Scenarios)."""
    what: str
    """The finding, in a sentence."""
    why: str
    """why it is so."""
    do: str | None
    """do says what to change; empty where nothing has to."""
    basis: str
    """basis is how it is known, simulated_groups how many groups the simulation ended if it is by simulation."""
    simulated_groups: int | None
    figures: dict[str, float]
    """figures are the numbers behind it."""


class Examination(Result):
    """The document of `headway doctor --json`.

    examination is what headway doctor --json prints.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"findings": DoctorFinding}
    _rows: ClassVar[str] = "findings"

    findings: list[DoctorFinding]
    errors: int
    warnings: int


class Settled(View):
    """Settled is whether a mean of the run means anything."""

    ok: bool
    why: str | None
    """why not, in words; more_steps is how many further train steps it should take, 0 where none can be said. from_step is where the judged window begins, steps how many it has."""
    more_steps: int | None
    from_step: int
    steps: int


class ForeignFigure(View):
    """Figure is one number of a log. The zero value is not known."""

    value: float
    origin: str | None
    """origin is empty where the figure is not known."""
    from_: str | None
    """from names the keys, or the formula over keys, that it comes from."""


class Fitted(View):
    """Fitted are the model's quantities. Each is a figure with its origin; unknown ones have no key in JSON."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"concurrency_rollouts": ForeignFigure, "batch_rollouts": ForeignFigure, "group_size": ForeignFigure, "tail_multiplier": ForeignFigure, "utilization": ForeignFigure, "acceptance": ForeignFigure, "step_s": ForeignFigure, "step_variation": ForeignFigure, "sync_s": ForeignFigure, "environment_ratio": ForeignFigure, "queue_factor": ForeignFigure, "arrival_variation": ForeignFigure}

    concurrency_rollouts: ForeignFigure | None
    batch_rollouts: ForeignFigure | None
    group_size: ForeignFigure | None
    tail_multiplier: ForeignFigure | None
    utilization: ForeignFigure | None
    acceptance: ForeignFigure | None
    step_s: ForeignFigure | None
    """step_s is the train step alone, step_variation its standard deviation over its mean."""
    step_variation: ForeignFigure | None
    sync_s: ForeignFigure | None
    environment_ratio: ForeignFigure | None
    """environment_ratio is e: environment time over generation time of a rollout."""
    queue_factor: ForeignFigure | None
    arrival_variation: ForeignFigure | None
    """arrival_variation is c, the effective variability of arrivals near ρ = 1."""


class DiagnosisComparison(View):
    """Comparison is one measured figure beside its prediction."""

    what: str
    """Name of the figure: staleness_mean, pqs, iqs, staleness_p95, period_s, trainer_idle_ratio…."""
    measured: float
    """measured with its half interval (95 %), 0 where there is none; predicted by Method: closed_form, simulation, resimulation or before_the_run."""
    half: float
    predicted: float
    method: str


class Change(View):
    """Change is a setting with what it would buy and cost."""

    set: str
    """set is the key and value as --set takes it, or the framework's own knob; holds_fixed what does not move."""
    overrides: list[str]
    """overrides are the same one by one, each as --set takes it; none where Set is no key of ours."""
    holds_fixed: str | None
    staleness_mean: float
    """staleness_mean after it, in versions, period_ratio the period after over before."""
    period_ratio: float
    gain: float
    """gain is the fall of the mean staleness, 0 to 1; Low and High its 95 % interval where simulated."""
    gain_low: float | None
    gain_high: float | None
    method: str
    """method is closed_form, simulation or resimulation."""
    price: str
    """price in words: idle GPUs, dropped groups, bias, memory."""


class DiagnosisFinding(View):
    """Finding is something that costs the run, or may."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"change": Change}

    code: str
    """code names the kind, title says it in one sentence."""
    title: str
    severity: str
    """severity is cost (it can be improved), warning (it will be dear) or defect (something is broken)."""
    evidence: list[str]
    """evidence are the figures it rests on, in words."""
    cost_versions: float
    """cost_versions is the staleness it is responsible for, cost_ratio the share of the period."""
    cost_ratio: float
    change: Change | None
    """change is what to do; nil where nothing can be set, and no_setting then says why."""
    no_setting: str | None
    fails: str | None
    """fails says under which condition the advice is wrong."""


class Drift(View):
    """Drift is one quantity over the run."""

    what: str
    """Name of the quantity: response_tokens, tail_multiplier, solve_rate, acceptance…."""
    first: float
    """first and last are means over the first and last quarter, per_step the slope; sure says that it is not chance."""
    last: float
    per_step: float
    sure: bool
    means: str | None
    """means says what it leads to, empty for nothing."""


class Asynchrony(View):
    """Asynchrony is what a run whose engines and trainer take turns would gain from asynchronous training on the same GPUs, divided between them. Times in seconds."""

    step_s: float
    """step_s is a step now, and the sum of the others; rest_s is what no part names."""
    generate_s: float
    log_probs_s: float
    train_s: float
    sync_s: float
    rest_s: float
    slots_busy_share: float | None
    """slots_busy_share is the mean share of the batch that still generates during generate_s; 0 where it is not known."""
    step_low_s: float
    """step_low_s and step_high_s bound a step of asynchronous training."""
    step_high_s: float
    rollout_share_low: float
    """rollout_share_low and rollout_share_high bound the share of the GPUs that generates."""
    rollout_share_high: float
    staleness_mean: float | None
    """staleness_mean is the mean staleness that it costs, by the closed form; 0 where it is not known."""
    assumes: list[str]
    """assumes are the conditions of the bounds, a sentence each."""


class Settings(View):
    """Settings are what a log says of how the run was set up. Rollouts, not groups, unless the name says so. Unknown settings have no key in JSON."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"concurrency_rollouts": ForeignFigure, "batch_rollouts": ForeignFigure, "group_size": ForeignFigure, "queue_rollouts": ForeignFigure, "staleness_budget": ForeignFigure, "sync_every": ForeignFigure, "rollout_gpus": ForeignFigure, "train_gpus": ForeignFigure}

    concurrency_rollouts: ForeignFigure | None
    """concurrency_rollouts is C, batch_rollouts B, group_size S, queue_rollouts Q (0 with an origin: unbounded)."""
    batch_rollouts: ForeignFigure | None
    group_size: ForeignFigure | None
    queue_rollouts: ForeignFigure | None
    staleness_budget: ForeignFigure | None
    """staleness_budget is the framework's own, in versions, sync_every the train steps a weight sync."""
    sync_every: ForeignFigure | None
    policy: str | None
    """policy is the queue's rule as loop.md names it, preset the name of ours; empty where unknown."""
    preset: str | None
    rollout_gpus: ForeignFigure | None
    """rollout_gpus and train_gpus are the split."""
    train_gpus: ForeignFigure | None
    shared_gpus: bool | None
    """shared_gpus says that engines and trainer use the same GPUs, so that none can change sides."""


class Missing(View):
    """Missing is something a log does not say."""

    what: str
    """Name of the missing quantity in our terms; why it cannot be known from these files; get, how to have it logged."""
    why: str
    get: str | None


class Warning(View):
    """Warning is something wrong with a file. Warnings of one kind are one, with a count."""

    file: str
    line: int | None
    """of the first, 0 where lines have no meaning."""
    text: str
    count: int


class Log(View):
    """Log is a run of another framework in our terms."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"settings": Settings, "missing": Missing, "warnings": Warning}

    framework: str
    """framework is verl-fa, verl-v1, verl-sync, prime-rl, skyrl, areal, pipelinerl, slime, nemo-rl, openrlhf, roll or trl; files what was read."""
    files: list[str]
    settings: Settings
    missing: list[Missing]
    """missing lists the quantities that could not be known, and inferred the computed ones. Warnings lists the faults of the files: torn lines, values that are no finite numbers, clocks that go back, unknown keys."""
    inferred: list[str]
    warnings: list[Warning]
    definition: str
    """definition says in words how this framework's staleness was turned into ours, and what the difference may be."""


class Diagnosis(Result):
    """The document of `headway diagnose --json`.

    Report is what is found in a run.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"settled": Settled, "fitted": Fitted, "compared": DiagnosisComparison, "attribution": AttributionSummary, "findings": DiagnosisFinding, "drift": Drift, "asynchrony": Asynchrony, "log": Log}
    _rows: ClassVar[str] = "findings"

    run: str
    """run names it; source is live, run, simulation, or the framework whose log it is."""
    source: str
    settled: Settled
    """settled says whether the run can be judged yet. If not, there are no findings but those that need no steady state."""
    fitted: Fitted
    """fitted are the quantities of the model, estimated from the run."""
    compared: list[DiagnosisComparison]
    """compared puts measured figures beside predicted ones."""
    attribution: AttributionSummary | None
    """attribution is nil where the log does not allow any."""
    findings: list[DiagnosisFinding]
    """findings by what they cost, the dearest first."""
    drift: list[Drift]
    """drift is how the run's workload moved over time."""
    asynchrony: Asynchrony | None
    """asynchrony is what a synchronous run would gain; nil for others, and where its log lacks the parts of a step."""
    log: Log | None
    """log is the foreign log: it has the gaps, and the values that were inferred; nil for our own runs."""
    warnings: list[str]


class MetricsConfidence(View):
    """Confidence holds 95 % confidence intervals by batch means."""

    staleness_mean_95: list[float]


class MetricsSummary(View):
    """Summary is what a run or a simulation reports of its measured window, under the names that scripts rely on."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"staleness": MetricsStaleness, "pqs": Mean, "iqs": Mean, "token_staleness": Mean, "period_s": Mean, "throughput": Throughput, "length": Length, "confidence": MetricsConfidence, "step_s": Mean, "sync_s": Mean, "waste": Waste, "partial": Partial, "filter_acceptance": Filters, "reuse": Reuse, "signal": Signal, "rollout_s": MeanMax, "latency": Latency, "services": Services, "failures": Failures, "control": Control}

    staleness: MetricsStaleness
    pqs: Mean
    iqs: Mean
    token_staleness: Mean
    utilization: float
    """utilization is ρ: rollouts produced per second over rollouts a busy trainer consumes per second, before any filter."""
    period_s: Mean
    trainer_idle_ratio: float
    trainer_absent_ratio: float | None
    """trainer_absent_ratio is the share of the time in which there was no trainer (Attendance): it neither trained nor waited."""
    rollout_idle_ratio: float
    throughput: Throughput
    length: Length
    confidence: MetricsConfidence
    tail_multiplier: float
    """tail_multiplier is E[longest rollout of a group]/E[rollout] of measured durations; acceptance the share of ready groups that were not filtered."""
    acceptance: float
    step_s: Mean
    """step_s is the mean train step alone, in seconds."""
    sync_s: Mean
    """sync_s is the mean time from a version to its being served by every engine, in seconds; 0 where no sync ended."""
    dominant: str
    """dominant is the larger part of the staleness: "pqs" or "iqs"."""
    steps: int
    """steps is how many train steps the window holds, window_s how long it is in seconds."""
    window_s: float
    waste: Waste
    """waste, partial, filter_acceptance, reuse and signal say what became of what was made."""
    partial: Partial
    filter_acceptance: Filters
    reuse: Reuse
    signal: Signal
    trainer_idle_s: float
    """trainer_idle_s is the time in which no train step ran, rollout_still_s that in which no slot held a rollout. slot_idle_s is the mean over slots of the time in which it held none and its engine was there; all in seconds."""
    rollout_still_s: float
    slot_idle_s: float
    rollout_s: MeanMax
    """rollout_s is the time a scored rollout spent in slots, in seconds: the mean, and the longest of complete groups."""
    groups_ready: int
    """groups_ready counts groups whose last rollout was scored, filtered ones included; syncs the weight syncs since the start of the run, not of the window."""
    syncs: int
    latency: Latency
    """latency is how long a scored rollout took, and for what."""
    services: Services
    """services says what sandboxes, tools, validations and lost engines did."""
    failures: Failures
    """failures counts attempts that failed, by why."""
    control: Control | None
    """control is what the controller did; nil without a goal."""


class Estimate(View):
    """Estimate is a mean over the measured window of a resimulation. Its intervals say what the window's length leaves open, not what the model leaves out: docs/what-if-accuracy.md has that."""

    mean: float
    interval_95: list[float] | None
    """interval_95 is by batch means over train steps, nil where they are too few."""
    difference: float | None
    """difference from the run's own settings, resimulated, with its interval. The interval is by batch means of the differences at the same place of the run, whose rollouts and steps are the same. Nil for the run's own settings themselves."""
    difference_95: list[float] | None


class Arm(View):
    """Arm is one setting of a resimulation."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"estimates": Estimate, "summary": MetricsSummary, "attribution": AttributionSummary, "ledger": Ledger, "unsettled": Unsettled}
    _maps: ClassVar[frozenset[str]] = frozenset({"estimates"})

    set: list[str]
    """set are the keys in which it differs from the run; empty for its own settings."""
    refused: str | None
    """refused says why it was not resimulated, "" where it was. It then has no figures."""
    estimates: dict[str, Estimate]
    """estimates are means with their intervals and paired differences."""
    summary: MetricsSummary | None
    attribution: AttributionSummary | None
    """attribution splits its staleness and idle time by source."""
    ledger: Ledger | None
    extrapolated_ratio: float
    """extrapolated_ratio is the share of rollouts and steps that were not recorded."""
    steps: int
    warmup_steps: int
    unsettled: list[Unsettled]
    """unsettled are the means of its steps that have not settled, and why."""
    warnings: list[str]


class Resimulation(Result):
    """The document of `headway resimulate --json`.

    Resimulation is what headway resimulate --json prints. A single setting's figures stand at the top, too.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"staleness": MetricsStaleness, "pqs": Mean, "iqs": Mean, "token_staleness": Mean, "period_s": Mean, "throughput": Throughput, "length": Length, "confidence": MetricsConfidence, "step_s": Mean, "sync_s": Mean, "waste": Waste, "partial": Partial, "filter_acceptance": Filters, "reuse": Reuse, "signal": Signal, "rollout_s": MeanMax, "latency": Latency, "services": Services, "failures": Failures, "control": Control, "measured": MetricsSummary, "measured_attribution": AttributionSummary, "unsettled": Unsettled, "own": Arm, "arms": Arm, "ledger": Ledger}
    _rows: ClassVar[str] = "arms"

    staleness: MetricsStaleness | None
    pqs: Mean | None
    iqs: Mean | None
    token_staleness: Mean | None
    utilization: float | None
    """utilization is ρ: rollouts produced per second over rollouts a busy trainer consumes per second, before any filter."""
    period_s: Mean | None
    trainer_idle_ratio: float | None
    trainer_absent_ratio: float | None
    """trainer_absent_ratio is the share of the time in which there was no trainer (Attendance): it neither trained nor waited."""
    rollout_idle_ratio: float | None
    throughput: Throughput | None
    length: Length | None
    confidence: MetricsConfidence | None
    tail_multiplier: float | None
    """tail_multiplier is E[longest rollout of a group]/E[rollout] of measured durations; acceptance the share of ready groups that were not filtered."""
    acceptance: float | None
    step_s: Mean | None
    """step_s is the mean train step alone, in seconds."""
    sync_s: Mean | None
    """sync_s is the mean time from a version to its being served by every engine, in seconds; 0 where no sync ended."""
    dominant: str | None
    """dominant is the larger part of the staleness: "pqs" or "iqs"."""
    steps: int | None
    """steps is how many train steps the window holds, window_s how long it is in seconds."""
    window_s: float | None
    waste: Waste | None
    """waste, partial, filter_acceptance, reuse and signal say what became of what was made."""
    partial: Partial | None
    filter_acceptance: Filters | None
    reuse: Reuse | None
    signal: Signal | None
    trainer_idle_s: float | None
    """trainer_idle_s is the time in which no train step ran, rollout_still_s that in which no slot held a rollout. slot_idle_s is the mean over slots of the time in which it held none and its engine was there; all in seconds."""
    rollout_still_s: float | None
    slot_idle_s: float | None
    rollout_s: MeanMax | None
    """rollout_s is the time a scored rollout spent in slots, in seconds: the mean, and the longest of complete groups."""
    groups_ready: int | None
    """groups_ready counts groups whose last rollout was scored, filtered ones included; syncs the weight syncs since the start of the run, not of the window."""
    syncs: int | None
    latency: Latency | None
    """latency is how long a scored rollout took, and for what."""
    services: Services | None
    """services says what sandboxes, tools, validations and lost engines did."""
    failures: Failures | None
    """failures counts attempts that failed, by why."""
    control: Control | None
    """control is what the controller did; nil without a goal."""
    run: str
    measured: MetricsSummary
    """measured is what the run measured of itself, over the same window; measured_attribution its split."""
    measured_attribution: AttributionSummary
    settled: bool
    """settled says that all means have, measured and resimulated; unsettled are those of the run itself that have not, and why."""
    unsettled: list[Unsettled]
    own: Arm
    """own are the run's own settings, resimulated: arms are compared with these."""
    arms: list[Arm]
    ledger: Ledger | None
    extrapolated_ratio: float
    warmup_steps: int
    warnings: list[str]


class CompareFigure(View):
    """Figure is one figure of one run."""

    value: float
    interval_95: list[float] | None
    """interval_95 is by batch means, null where there is none."""
    difference: float | None
    """difference from the first run, with its interval for runs that have nothing in common but chance."""
    difference_95: list[float] | None


class Run(View):
    """Run is one run of a comparison."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"figures": CompareFigure, "attribution": AttributionSummary, "ledger": Ledger, "control": Control}
    _maps: ClassVar[frozenset[str]] = frozenset({"figures"})

    name: str
    """name is the path's last part, longer where others share it."""
    path: str
    source: str
    """source is live, simulation, or the framework whose log it is."""
    program: str | None
    ended: bool
    """ended: the run, or its log, came to its end."""
    steps: int
    figures: dict[str, CompareFigure]
    """figures are by name; figures that were not measured are missing."""
    attribution: AttributionSummary | None
    """attribution is null where the log does not allow any; ledger likewise."""
    ledger: Ledger | None
    control: Control | None
    """control is how a target was kept, null without one."""
    warnings: list[str]


class CompareSetting(View):
    """Setting is a key in which runs differ."""

    key: str
    values: list[str]
    """values are as many as runs; "" where a run does not say."""


class Comparison(Result):
    """The document of `headway compare --json`.

    Comparison is what headway compare --json prints.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"runs": Run, "settings": CompareSetting}
    _rows: ClassVar[str] = "runs"

    runs: list[Run]
    settings: list[CompareSetting]
    warnings: list[str]


class Fault(View):
    """Fault is one thing wrong with what the caller gave, by its parts."""

    file: str | None
    """file, line and column are where it was given; line and column count from 1, 0 where unknown."""
    line: int | None
    column: int | None
    key: str | None
    """key is the dotted path of the document's key, or the flag."""
    value: str | None
    """value is what was given, as written."""
    problem: str | None
    """problem says what is wrong, allowed what is accepted."""
    allowed: str | None
    nearest: str | None
    """nearest is the known key or value that was probably meant."""


class Parts(View):
    """Parts are an error's. Code is usage (exit code 2) or failure."""

    _inner: ClassVar[Mapping[str, type[View]]] = {"faults": Fault}

    code: str
    exit_code: int
    message: str
    """message says what is wrong and where, hint what to do."""
    hint: str | None
    faults: list[Fault]
    """faults are the single mistakes, where they have places and keys."""


class ErrorDocument(View):
    """The document of `headway every command, where it fails before its result --json`.

    Document is what a command prints to standard output with --json where it fails before it prints its result.
    """

    _inner: ClassVar[Mapping[str, type[View]]] = {"error": Parts}

    error: Parts
