package doctor

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
)

// example shows a finding: a document that has it, and one that does not.
type example struct {
	code     string
	severity Severity
	key      string
	with     []string
	without  []string
}

const (
	solved = "modelled.solve={kind: fixed, rate: 0.5}"
	gang   = "rollout.start=gang"
	fixed  = "modelled.length={kind: fixed, mean_tokens: 300}"
	// taught runs learn from a teacher.
	taught = "scoring={servers: [{kind: vllm, url: 'http://127.0.0.1:1'}]}"
	// nearlyFixed lengths make a staleness with hardly a tail.
	nearlyFixed = "modelled.length={kind: lognormal, mean_tokens: 300, tailness: 8, cap_tokens: 8000}"
	threeLong   = "modelled.length={kind: lognormal, mean_tokens: 300, tailness: 90, cap_tokens: 8000}"
)

var examples = []example{
	{"plan-without-engines", Error, "hardware.model", []string{"hardware={model: qwen3-8b, gpu: h100-sxm}"}, []string{"hardware={gpus: 16}"}},
	{"plan-without-engines", Error, "hardware.gpu", []string{"hardware={gpu: h100-sxm, gpus: 16}"}, []string{"hardware={gpus: 16}"}},
	{"plan-without-engines", Error, "hardware.shape", []string{"hardware={shape: {parameters: 8e9}}"}, []string{"hardware={gpus: 16}"}},
	{"budget-starves", Error, keyBudget, []string{"queue={policy: max, max_staleness: 0}", "modelled.sync.time_s=2"}, []string{"queue={policy: max, max_staleness: 1}", "modelled.sync.time_s=2"}},
	{"budget-starves", Error, keyBudget, []string{"queue={policy: max, max_staleness: 1}", "sync.every=3"}, []string{"queue={policy: max, max_staleness: 2}", "sync.every=3"}},
	{"budget-starves", Error, keyBudget, []string{"queue={policy: max, max_staleness: 0, abort: true}"}, []string{"queue={policy: max, max_staleness: 0}"}},
	{"budget-starves", Error, keyEta, []string{"queue={policy: bounded, eta: 1.9}", "sync.every=3"}, []string{"queue={policy: bounded, eta: 2}", "sync.every=3"}},
	{"nothing-to-move", Error, keyLimits, []string{"control={target: 1, limits: {live_groups: {least: 16, most: 16}, concurrency: {least: 64}, hold: {most: 0}, queue_factor: {most: 1}}}"}, []string{"control={target: 1, limits: {live_groups: {least: 15, most: 16}, concurrency: {least: 64}, hold: {most: 0}, queue_factor: {most: 1}}}"}},
	{"target-over-budget", Error, keyTargetMean, []string{"queue={policy: max, max_staleness: 2}", "control.target=3"}, []string{"queue={policy: max, max_staleness: 4}", "control.target=3"}},
	{"target-over-budget", Error, keyTargetWithin, []string{"queue={policy: max, max_staleness: 2}", "control.target={share: 0.9, within: 2}"}, []string{"queue={policy: max, max_staleness: 2}", "control.target={share: 0.9, within: 1}"}},
	{"target-over-budget", Warning, keyTarget, []string{"queue={policy: bounded, eta: 1.5}", "control.target=1.5"}, []string{"queue={policy: bounded, eta: 1.5}", "control.target=1.4"}},
	{"target-always-holds", Info, keyTarget, []string{lengths, "control.target=12"}, []string{lengths, "control.target=1"}},
	{"target-always-holds", Info, keyTarget, []string{lengths, "control.target={share: 0.9, within: 12}"}, []string{lengths, "control.target={share: 0.9, within: 1}"}},
	{"target-unreachable", Warning, keyTarget, []string{lengths, "modelled.train.utilization=1.5", "control={target: 0.5, limits: {live_groups: {least: 32}}}"}, []string{lengths, "modelled.train.utilization=1.5", "control={target: 0.5}"}},
	{"target-unreachable", Warning, keyTarget, []string{lengths, "modelled.train.utilization=1.5", "control={target: {share: 0.95, within: 1}, limits: {live_groups: {least: 32}}}"}, []string{lengths, "modelled.train.utilization=1.5", "control={target: {share: 0.95, within: 4}}"}},
	{"target-price", Info, keyTarget, []string{lengths, "control.target=1"}, []string{lengths, "control.target=12"}},
	{"controlled-start", Info, keyHold, []string{"rollout.concurrency=128", "queue.hold=0.1", "control.target=1"}, []string{"rollout.concurrency=128", "queue.hold=0.1", "control={target: 1, limits: {hold: {least: 0.1, most: 0.1}}}"}},
	{"controlled-start", Info, keySyncEvery, []string{"sync.every=2", "control={target: 2, limits: {sync_every: {least: 1, most: 4}}}"}, []string{"sync.every=2", "control={target: 2}"}},
	{"budget-cannot-bind", Warning, keyBudget, []string{lengths, "queue={policy: replay, capacity: 256, max_staleness: 40}"}, []string{lengths, "queue={policy: replay, capacity: 256, max_staleness: 4}"}},
	{"budget-cannot-bind", Warning, keyBudget, []string{fixed, "queue={policy: max, max_staleness: 8}"}, []string{fixed, "queue={policy: max, max_staleness: 1}"}},
	{"budget-cannot-bind", Warning, keyBudget, []string{lengths, "queue={policy: max, max_staleness: 12}"}, []string{lengths, "queue={policy: max, max_staleness: 2}"}},
	{"budget-cannot-bind", Warning, keyBudget, []string{lengths, "preset=prime-rl"}, []string{lengths, "preset=prime-rl", "rollout.concurrency=512", "queue.max_staleness=4"}},
	{"budget-cannot-bind", Info, keyBudget, []string{nearlyFixed, "queue={policy: max, max_staleness: 3}"}, []string{nearlyFixed, "queue={policy: max, max_staleness: 1}"}},
	{"budget-cannot-bind", Warning, keyEta, []string{lengths, "modelled.train.utilization=0.5", "queue={policy: bounded, eta: 20}"}, []string{lengths, "modelled.train.utilization=1.5", "queue={policy: bounded, eta: 1}"}},
	{"no-slots", Error, keyConcurrency, []string{gang, "rollout.concurrency=3"}, []string{gang, "rollout.concurrency=4"}},
	{"no-batch", Error, keyCapacity, []string{"queue.capacity=32"}, []string{"queue.capacity=64"}},
	{"no-batch", Error, keyPause, []string{"queue.pause_at=0.5"}, []string{"queue.pause_at=1"}},
	{"batch-of-groups", Error, keyBatch, []string{"train.batch=65"}, []string{"train.batch=68"}},
	{"batch-of-groups", Error, keyBatch, []string{"train.batch=6"}, []string{"train.batch=4"}},
	{"no-spare-engine", Warning, keyEngines, []string{gang, "rollout.concurrency=6", "engines=[{slots: 3}, {slots: 3}]"}, []string{gang, "engines=[{slots: 32}, {slots: 32}]"}},
	{"group-over-slots", Warning, keyConcurrency, []string{"rollout.concurrency=2"}, []string{"rollout.concurrency=4"}},
	{"stalls", Error, keyPrune, []string{lengths, "rollout.prune.tokens=1"}, []string{lengths, "rollout.prune.tokens=600"}},
	{"stalls", Error, keyBand, []string{"modelled.solve={kind: fixed, rate: 0}", "filter.solve_rate={low: 0.5, high: 1, drop: true}"}, []string{solved, "filter.solve_rate={low: 0.5, high: 1, drop: true}"}},
	{"band-unreached", Warning, keyBand, []string{"filter.solve_rate={low: 0.9, high: 1, drop: true}"}, []string{"filter.solve_rate={low: 0, high: 0.5, drop: true}"}},
	{"band-unreached", Warning, keyBand, []string{"filter.solve_rate={low: 0.9, high: 1, drop: true}", "filter.curriculum={levels: 4}"}, []string{"filter.solve_rate={low: 0.9, high: 1, drop: true}", "environment={task: addition}"}},
	{"trainer-idle", Warning, keySyncMode, []string{lengths, "preset=openrlhf"}, []string{lengths}},
	{"trainer-idle", Warning, keyThreshold, []string{threeLong, "modelled.train.utilization=1.5", "queue={policy: threshold, staleness_threshold: 0}"}, []string{threeLong, "modelled.train.utilization=1.5", "queue={policy: threshold, staleness_threshold: 3}"}},
	{"trainer-idle", Warning, keyBudget, []string{lengths, "preset=nemo-windowed", "rollout.concurrency=128"}, []string{lengths, "preset=nemo-windowed", "rollout.concurrency=128", "queue.max_staleness=12"}},
	{"trainer-idle", Warning, keySyncTime, []string{lengths, "sync={mode: pause, trainer: blocked}", "modelled.sync={time_s: 60}"}, []string{lengths, "sync={mode: pause, trainer: blocked}", "modelled.sync={time_s: 1}"}},
	{"trainer-idle", Warning, keyEta, []string{threeLong, "modelled.train.utilization=1.5", "queue={policy: bounded, eta: 0}"}, []string{threeLong, "modelled.train.utilization=1.5", "queue={policy: bounded, eta: 4}"}},
	{"trainer-idle", Info, keyEta, []string{threeLong, "modelled.train.utilization=1.5", "queue={policy: bounded, eta: 0.5}", "budget.staleness_mean=0.5"}, []string{threeLong, "modelled.train.utilization=1.5", "queue={policy: bounded, eta: 0.5}"}},
	{"trainer-idle", Info, keyPause, []string{lengths, "preset=prime-rl", "rollout.concurrency=256", "modelled.train.utilization=1.5"}, []string{lengths, "preset=prime-rl", "rollout.concurrency=64", "modelled.train.utilization=1.5"}},
	{"trainer-idle", Warning, keyPrune, []string{lengths, "rollout={group_size: 1}", "rollout.prune.tokens=120"}, []string{lengths, "rollout={group_size: 1}", "rollout.prune.tokens=1500"}},
	{"trainer-idle", Warning, keyHold, []string{threeLong, "queue={hold: 0.9, factor: 2, select: fresh}"}, []string{threeLong, "queue={hold: 0.5, factor: 2, select: fresh}"}},
	{"trainer-idle", Warning, "filter.zero_advantage", []string{lengths, "modelled.solve={kind: fixed, rate: 0.95}", "filter.zero_advantage=true"}, []string{lengths, solved, "filter.zero_advantage=true"}},
	{"trainer-idle", Warning, keyBand, []string{lengths, solved, "filter.solve_rate={low: 0.5, high: 0.6, drop: true}"}, []string{lengths, solved, "filter.solve_rate={low: 0, high: 0.9, drop: true}"}},
	{"trainer-idle", Info, "modelled.train.step_s", []string{lengths, "modelled.train={utilization: null, step_s: 3}"}, []string{lengths, "modelled.train={utilization: null, step_s: 30}"}},
	{"trainer-idle", Info, keyUtilization, []string{lengths, "modelled.train.utilization=0.5"}, []string{lengths}},
	{"trainer-idle", Info, keyTarget, []string{lengths, "control.target=1"}, []string{lengths, "control.target=12"}},
	{"trainer-idle", Info, keySchedule, []string{lengths, "schedule=synchronous"}, []string{lengths}},
	{"train-bound", Info, keyUtilization, []string{lengths, "modelled.train.utilization=1.5", "queue={policy: bounded, eta: 4}"}, []string{lengths, "modelled.train.utilization=1.5", "preset=openrlhf"}},
	{"stalls", Error, "modelled.filter.acceptance", []string{lengths, "modelled.filter.acceptance=0.000001"}, []string{lengths, "modelled.filter.acceptance=0.5"}},
	{"stalls", Error, "filter.zero_advantage", []string{"modelled.solve={kind: fixed, rate: 1}", "filter.zero_advantage=true"}, []string{solved, "filter.zero_advantage=true"}},
	{"waste", Warning, keyConcurrency, []string{lengths, "modelled.train.utilization=1.5"}, []string{lengths, "modelled.train.utilization=0.8"}},
	{"waste", Error, keyConcurrency, []string{lengths, "modelled.train.utilization=12"}, []string{lengths, "modelled.train.utilization=12", "queue={policy: bounded, eta: 1}"}},
	{"waste", Warning, keyBudget, []string{lengths, "rollout.concurrency=256", "queue={policy: max, max_staleness: 6, factor: 2}"}, []string{lengths, "queue={policy: max, max_staleness: 6, factor: 2}"}},
	{"filter-starves", Warning, "modelled.filter.acceptance", []string{"modelled.train.utilization=1.2", "modelled.filter.acceptance=0.5"}, []string{"modelled.train.utilization=2.5", "modelled.filter.acceptance=0.5"}},
	{"zero-advantage", Warning, "filter.zero_advantage", []string{solved, "filter.zero_advantage=true"}, []string{solved}},
	{"zero-advantage", Info, "filter.zero_advantage", []string{"modelled.solve={kind: logistic, from: 0.5, to: 0.5, steps: 10, levels: [0, 1]}", "filter={zero_advantage: true, curriculum: {levels: 2}}"}, []string{solved}},
	{"single-group-over-eta", Info, keyEta, []string{lengths, "queue={policy: bounded, eta: 1}"}, []string{lengths, "queue={policy: bounded, eta: 0}"}},
	{"eta-admits-nothing", Warning, keyEta, []string{"queue={policy: bounded, eta: 0.05}"}, []string{"queue={policy: bounded, eta: 0.5}"}},
	{"eta-admits-nothing", Warning, keyThreshold, []string{"queue={policy: threshold, staleness_threshold: 0.05}"}, []string{"queue={policy: threshold, staleness_threshold: 0.05}", "sync.every=4"}},
	{"threshold-mean", Info, keyThreshold, []string{lengths, "queue={policy: threshold, staleness_threshold: 0.5}"}, []string{lengths, "queue={policy: bounded, eta: 0.5}"}},
	{"partial-without-effect", Warning, keySyncMode, []string{"queue={policy: threshold, staleness_threshold: 0}", "sync.mode=restart"}, []string{"queue={policy: threshold, staleness_threshold: 0.5}", "sync.mode=restart"}},
	{"partial-without-effect", Warning, keySyncMode, []string{"queue={policy: threshold, staleness_threshold: 0, partial_rollout: true}"}, []string{"queue={policy: threshold, staleness_threshold: 0, partial_rollout: false}"}},
	{"partial-without-effect", Warning, keySyncMode, []string{"schedule=synchronous", "sync.mode=restart"}, []string{"schedule=synchronous"}},
	{"hold-bias", Warning, keyHold, []string{lengths, "queue.hold=0.5", "rollout.concurrency=256", "modelled.train.utilization=1.5"}, []string{lengths, "queue.hold=0.5", "rollout.concurrency=256"}},
	{"hold-bias", Warning, keyHold, []string{lengths, "rollout.concurrency=32", "queue.hold=0.2", "modelled.train.utilization=1.5"}, []string{lengths, "rollout.concurrency=32", "queue={hold: 0.2, select: fresh, factor: 2}", "modelled.train.utilization=1.5"}},
	{"hold-bias", Warning, keyHold, []string{"queue={hold: 0.8, select: fresh, factor: 2}", "modelled.train.utilization=null"}, []string{"queue={hold: 0.7, select: fresh, factor: 2}", "modelled.train.utilization=null"}},
	{"hold-bias", Warning, keyHold, []string{lengths, "rollout.concurrency=64", "queue={hold: 0.2, factor: 2, select: newest}", "modelled.train.utilization=1.5"}, []string{lengths, "rollout.concurrency=160", "queue={hold: 0.2, factor: 2, select: newest}", "modelled.train.utilization=1.5"}},
	{"hold-price", Info, keyHold, []string{"queue.hold=0.2"}, []string{"queue.hold=0.2", "modelled.train.utilization=1.2"}},
	{"hold-price", Info, keyHold, []string{"queue={hold: 0.7, select: fresh, factor: 2}", "modelled.train.utilization=1.2"}, []string{"queue={hold: 0.7, select: fresh, factor: 2}", "modelled.train.utilization=1.3"}},
	{"fresh-instead", Info, keySelect, []string{lengths, "rollout.concurrency=160", "queue={hold: 0.2, factor: 2, select: newest}", "modelled.train.utilization=1.5"}, []string{lengths, "rollout.concurrency=160", "queue={hold: 0.6, factor: 2, select: fresh}", "modelled.train.utilization=1.5"}},
	{"select-without-effect", Warning, keySelect, []string{"queue.select=newest"}, []string{"queue={select: newest, factor: 2}"}},
	{"newest-without-need", Info, keySelect, []string{"queue={select: newest, factor: 2}", "modelled.train.utilization=0.5"}, []string{"queue={select: newest, factor: 2}", "modelled.train.utilization=1"}},
	{"queue-factor", Warning, keyFactor, []string{lengths, "queue.factor=2", "modelled.train.utilization=1.6"}, []string{lengths, "queue.factor=1", "modelled.train.utilization=1.6"}},
	{"queue-factor", Info, keyCapacity, []string{lengths, "queue.capacity=128", "modelled.train.utilization=1"}, []string{lengths, "queue={capacity: 128, select: newest}", "modelled.train.utilization=1"}},
	{"oversampling-bias", Warning, keyOversample, []string{lengths, "schedule=synchronous", "rollout.oversample=1.5", "rollout.concurrency=128"}, []string{lengths, "schedule=synchronous", "rollout.concurrency=128"}},
	{"oversampling-bias", Warning, keyOversample, []string{lengths, "schedule=synchronous", "rollout.oversample=1.5"}, []string{lengths}},
	{"oversampling-bias", Info, keyOversample, []string{fixed, "schedule=synchronous", "rollout.oversample=1.5", "rollout.concurrency=128"}, []string{fixed}},
	{"redundancy-bias", Warning, keyRedundancy, []string{lengths, "rollout.redundancy=2"}, []string{lengths}},
	{"redundancy-bias", Warning, keyRedundancy, []string{lengths, "rollout.redundancy=2", "rollout.concurrency=16"}, []string{lengths, "rollout.concurrency=16"}},
	{"redundancy-bias", Info, keyRedundancy, []string{fixed, "rollout.redundancy=2"}, []string{fixed}},
	{"prune-share", Warning, keyPrune, []string{lengths, "rollout.prune.tokens=600"}, []string{lengths}},
	{"prune-share", Error, keyPrune, []string{lengths, "rollout.prune.tokens=40"}, []string{lengths}},
	{"prune-share", Info, keyPrune, []string{lengths, "rollout.prune.tokens=1800"}, []string{lengths}},
	{"band-empty", Error, keyBand, []string{solved, "filter.solve_rate={low: 0.6, high: 0.7, drop: true}"}, []string{solved, "filter.solve_rate={low: 0.6, high: 0.8, drop: true}"}},
	{"band-empty", Error, keyBand, []string{solved, "filter.solve_rate={low: 0.9, high: 1, drop: true}", "filter.zero_advantage=true"}, []string{solved, "filter.solve_rate={low: 0.9, high: 1, drop: true}"}},
	{"band-narrow", Warning, keyBand, []string{solved, "filter.solve_rate={low: 0.5, high: 0.6, drop: true}"}, []string{solved, "filter.solve_rate={low: 0.2, high: 0.8, drop: true}"}},
	{"band-missed", Warning, keyBand, []string{"modelled.solve={kind: logistic, from: -1, to: 5, steps: 300}", "filter.solve_rate={drop: true}"}, []string{"modelled.solve={kind: logistic, from: -1, to: 1, steps: 300}", "filter.solve_rate={drop: true}"}},
	{"band-missed", Warning, keyLevels, []string{"modelled.solve={kind: logistic, from: -4, to: 4, steps: 300, levels: [0, 2]}", "filter.curriculum={levels: 2}"}, []string{"modelled.solve={kind: logistic, from: -4, to: 4, steps: 300, levels: [-4, 0, 4]}", "filter.curriculum={levels: 3}"}},
	{"prune-check", Warning, keyCheck, []string{"rollout.prune.check=task"}, []string{"rollout.prune.tokens=400"}},
	{"waste", Error, keyConcurrency, []string{"modelled.train.utilization=10000"}, []string{"modelled.train.utilization=10000", "queue.policy=block"}},
	{"requeue-bias", Warning, keyRequeue, []string{threeLong, "queue={policy: max, max_staleness: 3, factor: 2}", "rollout.concurrency=128", "prompts.requeue=true"}, []string{threeLong, "prompts.requeue=true"}},
	{"interrupt-without-effect", Warning, keyInterrupt, []string{"schedule=synchronous", "rollout.partial.interrupt=batch"}, []string{"schedule=synchronous", "rollout.partial.interrupt=batch", "rollout.oversample=1.5"}},
	{"interrupt-without-effect", Info, keyInterrupt, []string{lengths, "modelled.train.utilization=0.2", "rollout.partial.interrupt=batch"}, []string{lengths, "modelled.train.utilization=1.5", "rollout.partial.interrupt=batch"}},
	{"replay-buffer-small", Warning, keyCapacity, []string{"queue={policy: replay, capacity: 64}"}, []string{"queue={policy: replay, capacity: 256}"}},
	{"replay-staleness", Info, keyUses, []string{lengths, "queue={policy: replay, capacity: 256}"}, []string{lengths}},
	{"sync-longer-than-step", Warning, keySyncTime, []string{"modelled.sync.time_s=60"}, []string{"modelled.sync.time_s=10"}},
	{"settling", Warning, keyWarmup, []string{"steps.warmup=5"}, []string{"steps.warmup=300"}},
	{"not-smooth", Warning, keyTailness, []string{fixed}, []string{lengths}},
	{"tail", Info, keyTailness, []string{lengths, "rollout.concurrency=128"}, []string{lengths, "rollout.concurrency=16"}},
	{"train-bound", Info, keyUtilization, []string{"modelled.train.utilization=1.5"}, []string{"modelled.train.utilization=0.9"}},
	{"train-bound", Info, "modelled.train.step_s", []string{"modelled.train={utilization: null, step_s: 60}"}, []string{"modelled.train={utilization: null, step_s: 20}"}},
	{"not-simulated", Info, "train", []string{"modelled.train.utilization=null"}, []string{lengths}},
	{"not-simulated", Info, "modelled.solve", []string{"filter.solve_rate={drop: true}"}, []string{solved, "filter.solve_rate={drop: true}"}},
	{"not-simulated", Info, keyConcurrency, []string{"rollout.concurrency=300000"}, []string{"rollout.concurrency=3000"}},
	{"not-simulated", Info, "rollout", []string{lengths, "modelled.train.step_cv=0.5"}, []string{lengths}},
	{"not-simulated", Info, keyTarget, []string{lengths, "train.batch=512", "control={target: 1, window: 1024}"}, []string{lengths, "train.batch=512", "control={target: 1, window: 64}"}},
	{"capacity-below-admission", Error, keyCapacity, []string{"queue={policy: bounded, eta: 2, capacity: 64}"}, []string{"queue={policy: bounded, eta: 2, capacity: 192}"}},
	{"capacity-below-admission", Error, keyFactor, []string{"queue={policy: threshold, staleness_threshold: 1, factor: 1}"}, []string{"queue={policy: threshold, staleness_threshold: 1, factor: 2}"}},
	{"slots-idle", Warning, keyConcurrency, []string{"rollout.concurrency=256", "queue={policy: bounded, eta: 1}"}, []string{"rollout.concurrency=128", "queue={policy: bounded, eta: 1}"}},
	{"slots-idle", Warning, keyConcurrency, []string{"rollout.concurrency=256", "schedule=synchronous"}, []string{"rollout.concurrency=256"}},
	{"on-policy", Info, keyThreshold, []string{"queue={policy: threshold, staleness_threshold: 0}"}, []string{"queue={policy: threshold, staleness_threshold: 0}", "sync.every=2"}},
	{"no-staleness-bound", Info, keyPolicy, []string{threeLong, "rollout.concurrency=128"}, []string{threeLong, "rollout.concurrency=128", "queue={policy: max, max_staleness: 12}"}},
	{"discard-bias", Warning, keyBudget, []string{threeLong, "queue={policy: max, max_staleness: 3, factor: 2}", "rollout.concurrency=128"}, []string{threeLong, "queue={policy: max, max_staleness: 40, factor: 2}", "rollout.concurrency=128"}},
	{"abort-waste", Warning, keyAbort, []string{threeLong, "queue={policy: max, max_staleness: 2, abort: true}", "rollout.concurrency=128"}, []string{threeLong, "queue={policy: max, max_staleness: 2}", "rollout.concurrency=128"}},
	{"mixed-versions", Warning, keyCorrection, []string{"trainer.correction.kind=none", "sync.mode=restart"}, []string{"trainer.correction.kind=tis", "sync.mode=restart"}},
	{"group-of-one", Warning, keyGroupSize, []string{"rollout={group_size: 1}"}, []string{"rollout={group_size: 2}"}},
	{"group-of-one", Warning, keyGroupSize, []string{"rollout={group_size: 1}", "trainer.kind=remote"}, []string{"rollout={group_size: 1}", "trainer.kind=remote", taught}},
	{"minibatches-uneven", Warning, keyMinibatch, []string{"trainer.minibatches=3"}, []string{"trainer.minibatches=4"}},
	{"length-cap", Info, keyCap, []string{"modelled.length={kind: lognormal, mean_tokens: 300, tailness: 50, cap_tokens: 900}"}, []string{"modelled.length={kind: lognormal, mean_tokens: 300, tailness: 50, cap_tokens: 8000}"}},
	{"length-cap", Warning, keyCap, []string{"modelled.length={kind: lognormal, mean_tokens: 300, tailness: 50, cap_tokens: 400}"}, []string{lengths}},
	{"barrier", Warning, keySchedule, []string{"modelled.length={kind: lognormal, mean_tokens: 300, tailness: 50}", "schedule=synchronous"}, []string{lengths, "schedule=synchronous"}},
	{"barrier", Info, keySchedule, []string{lengths, "schedule=synchronous"}, []string{lengths}},
	{"batch-staleness", Info, keyBatch, []string{lengths, "rollout.concurrency=256"}, []string{lengths, "rollout.concurrency=32"}},
	{"service-saturated", Warning, keyStarts, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: exponential, mean_s: 30}, start_concurrency: 8, start_timeout_s: 120}"}, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: exponential, mean_s: 3}, start_concurrency: 64}"}},
	{"service-saturated", Warning, keyTools, []string{lengths, "modelled.tools={calls: 4, time: {kind: fixed, mean_s: 2}, concurrency: 10}"}, []string{lengths, "modelled.tools={calls: 4, time: {kind: fixed, mean_s: 2}}"}},
	{"service-saturated", Warning, keyVerifiers, []string{lengths, "modelled.verifier={time: {kind: fixed, mean_s: 5}, concurrency: 4}"}, []string{lengths, "modelled.verifier={time: {kind: fixed, mean_s: 5}, concurrency: 60}"}},
	{"service-saturated", Warning, keyScorers, []string{lengths, "modelled.scorer={time: {kind: fixed, mean_s: 5}, concurrency: 4}"}, []string{lengths, "modelled.scorer={time: {kind: fixed, mean_s: 5}, concurrency: 60}"}},
	{"groups-fail", Warning, keyAttempts, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 1}, failure_rate: 0.4}"}, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 1}, failure_rate: 0.01}"}},
	{"groups-fail", Warning, keyAttempts, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 1}, failure_rate: 0.4}", "failures={on_failure: shrink, group_min: 4}"},
		[]string{lengths, "modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 1}, failure_rate: 0.4}", "failures={on_failure: shrink}"}},
	{"groups-fail", Error, keyStartTimeout, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: exponential, mean_s: 30}, start_concurrency: 4, start_timeout_s: 25}"}, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: exponential, mean_s: 3}, start_concurrency: 64, start_timeout_s: 120}"}},
	{"trainer-idle", Warning, keyTools, []string{lengths, "modelled.tools={calls: 4, time: {kind: fixed, mean_s: 2}, concurrency: 10}"}, []string{lengths, "modelled.tools={calls: 1, time: {kind: fixed, mean_s: 0.1}}"}},
	{"trainer-idle", Warning, keyVerifiers, []string{lengths, "modelled.verifier={time: {kind: fixed, mean_s: 5}, concurrency: 4}"}, []string{lengths, "modelled.verifier={time: {kind: fixed, mean_s: 0.1}}"}},
	{"trainer-idle", Warning, keyScorers, []string{lengths, "modelled.scorer={time: {kind: fixed, mean_s: 5}, concurrency: 4}"}, []string{lengths, "modelled.scorer={time: {kind: fixed, mean_s: 0.1}}"}},
	{"trainer-idle", Warning, keyStarts, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 5}, start_concurrency: 4}"}, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 0.1}}"}},
	{"trainer-idle", Warning, keySandboxes, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 0.1}, limit: 16}"}, []string{lengths, "modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 0.1}}"}},
	{"sandboxes-limit", Warning, keySandboxes, []string{"modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 1}, limit: 16}"}, []string{"modelled.sandbox={when: rollout, start: {kind: fixed, mean_s: 1}, limit: 64}"}},
	{"run-too-short", Warning, keyMeasured, []string{lengths, "steps={warmup: 300, measured: 4}"}, []string{lengths}},
	{"run-too-short", Warning, keySteps, []string{lengths, "queue.factor=9", "modelled.train.utilization=1", "steps.measured=100000"}, []string{lengths, "queue.factor=1"}},
	{"evaluation-stops", Warning, keyEvaluate, []string{"evaluate={every: 1}", "modelled.evaluate={occupies: engines, time_s: 60}"}, []string{"evaluate={every: 100}", "modelled.evaluate={occupies: engines, time_s: 60}"}},
	{"drift-crosses", Warning, keyDrift, []string{lengths, "modelled.train.utilization=1.5", "rollout.drift={steps: 100, length_factor: 2}"}, []string{lengths, "modelled.train.utilization=0.8", "rollout.drift={steps: 100, length_factor: 2}"}},
	{"drift-crosses", Info, keyDrift, []string{lengths, "modelled.train.utilization=0.8", "rollout.drift={steps: 100, length_factor: 2}"}, []string{lengths, "modelled.train.step_by=tokens", "rollout.drift={steps: 100, length_factor: 2}"}},
	{"engines-lost", Error, keyLosses, []string{"engines=[{slots: 64, name: a}]", "failures.engine_plan=[{engine: a, at_s: 100}]"}, []string{"engines=[{slots: 64, name: a}]", "failures.engine_plan=[{engine: a, at_s: 100, down_s: 60}]"}},
	{"engines-lost", Warning, keyMTBF, []string{"modelled.failures={engine_mtbf_s: 1000, engine_down_s: 300}"}, []string{"modelled.failures={engine_mtbf_s: 10000, engine_down_s: 300}"}},
	{"config", Warning, "queue.gen_batch_size", []string{"queue={policy: threshold, staleness_threshold: 0.5, gen_batch_size: 8}"}, []string{"queue={policy: threshold, staleness_threshold: 0.5}"}},
}

// examined keeps what was found: many examples share a document.
var examined = map[string][]Finding{}

// examine is Check, or Refuted where config refuses the document.
func examine(t *testing.T, overrides []string) []Finding {
	t.Helper()
	key := fmt.Sprintf("%q", overrides)
	findings, known := examined[key]
	if !known {
		findings = examineAnew(t, overrides)
		examined[key] = findings
	}
	return slices.Clone(findings)
}

// examinations keeps what was simulated of the documents of examples.
var examinations = map[string]*examination{}

// examineFor is examine of one code, without the simulations that others need.
func examineFor(t *testing.T, overrides []string, code string) []Finding {
	t.Helper()
	if _, err := resolved(t, overrides...); err != nil || code == configWarning.Code { // which is what no other code is about
		return examine(t, overrides)
	}
	key := fmt.Sprintf("%q", overrides)
	e := examinations[key]
	if e == nil {
		e = newExamination(caseOf(t, overrides...))
		examinations[key] = e
	}
	e.findings = nil
	for _, c := range checks() {
		if c.kind.Code == code {
			e.kind = c.kind
			c.look(e)
		}
	}
	if e.err != nil {
		t.Fatalf("%q: %v", overrides, e.err)
	}
	slices.SortStableFunc(e.findings, func(a, b Finding) int { return a.Severity.rank() - b.Severity.rank() })
	wellFormed(t, e.findings)
	return e.findings
}

func examineAnew(t *testing.T, overrides []string) []Finding {
	t.Helper()
	d, err := resolved(t, overrides...)
	if err == nil {
		return findingsOf(t, caseOf(t, overrides...))
	}
	findings, all := Refuted(d, err)
	if !all {
		t.Fatalf("%q: %v", overrides, err)
	}
	wellFormed(t, findings)
	return findings
}

func TestFindings(t *testing.T) {
	for _, e := range examples {
		t.Run(e.code+"/"+string(e.severity)+"/"+e.key, func(t *testing.T) {
			f, ok := find(examineFor(t, e.with, e.code), e.code)
			if !ok || f.Severity != e.severity || f.Key != e.key {
				t.Errorf("%q: found %+v, want a %s about %s", e.with, f, e.severity, e.key)
			}
			if testing.Verbose() {
				t.Logf("%s\n why %s\n do  %s\n %v", f.What, f.Why, f.Do, f.Figures)
			}
			if f, ok := find(examineFor(t, e.without, e.code), e.code); ok && f.Severity == e.severity {
				t.Errorf("%q: found %+v, want nothing", e.without, f)
			}
		})
	}
}

// A target that no simulation looks at is said not to be examined, and one that is simulated is not.
func TestTargetIsSaidNotToBeExamined(t *testing.T) {
	const word = "control.target can be held, and what that costs, is not examined"
	for _, c := range []struct {
		overrides []string
		said      bool
	}{
		{[]string{"modelled.train.utilization=null", "control.target=0.0001"}, true},
		{[]string{"filter.solve_rate={drop: true}", "control.target=1"}, true},
		{[]string{"rollout.concurrency=300000", "control.target=1"}, true},
		{[]string{lengths, "train.batch=512", "control={target: 1, window: 1024}"}, true},
		{[]string{lengths, "modelled.train.step_cv=0.5", "control.target=1"}, false},
		{[]string{"modelled.train.utilization=null"}, false},
	} {
		f, ok := find(examineFor(t, c.overrides, "not-simulated"), "not-simulated")
		if !ok || strings.Contains(f.What, word) != c.said {
			t.Errorf("%q: %+v", c.overrides, f)
		}
	}
}

// Every kind has an example of every severity it can have.
func TestEveryKindIsShown(t *testing.T) {
	for _, k := range kinds() {
		for _, severity := range k.Severities {
			served := slices.ContainsFunc(servedExamples, func(e servedExample) bool { return e.code == k.Code && e.severity == severity }) ||
				slices.ContainsFunc(environmentExamples, func(e environmentExample) bool { return e.code == k.Code && e.severity == severity }) || showsScorer(k.Code, severity)
			if !served && !slices.ContainsFunc(examples, func(e example) bool { return e.code == k.Code && e.severity == severity }) {
				t.Errorf("no example of a %s %s", severity, k.Code)
			}
		}
		for _, key := range k.Keys {
			served := slices.ContainsFunc(servedExamples, func(e servedExample) bool { return e.code == k.Code && e.key == key }) ||
				slices.ContainsFunc(environmentExamples, func(e environmentExample) bool { return e.code == k.Code && e.key == key }) || key == keyScoring
			if !served && !slices.ContainsFunc(examples, func(e example) bool { return e.code == k.Code && e.key == key }) && k.Code != configWarning.Code && key != "modelled.train.throughput_tokens_per_s" && !(k.Code == "stalls" && (key == keyPolicy || key == keyBudget)) { // TestStallCause has these
				t.Errorf("no example of %s about %s", k.Code, key)
			}
			if _, err := (config.Config{}).Set(key + "=null"); err != nil && key != "any" {
				t.Errorf("%s is about a key there is not: %v", k.Code, err)
			}
		}
	}
}

// The default document has nothing wrong with it.
func TestDefaults(t *testing.T) {
	d, err := config.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findingsOf(t, Case{Document: d}) {
		if f.Severity != Info {
			t.Errorf("found %+v", f)
		}
	}
}

// A finding says where the document, an override or a preset gave its key.
func TestFindingsArePlaced(t *testing.T) {
	at := func(overrides ...string) string {
		f, _ := find(examine(t, overrides), "waste")
		return fmt.Sprintf("%s %s:%d", f.Key, f.File, f.Line)
	}
	if got := at("modelled.train.utilization=3"); got != keyConcurrency+" case.yaml:3" {
		t.Errorf("placed at %s", got)
	}
	if got := at("modelled.train.utilization=3", "rollout.concurrency=128"); got != keyConcurrency+" --set:0" {
		t.Errorf("an override is placed at %s", got)
	}
	f, _ := find(examine(t, []string{lengths, "preset=prime-rl"}), "budget-cannot-bind")
	if f.File != "preset prime-rl" {
		t.Errorf("a preset's key is placed at %q:%d", f.File, f.Line)
	}
	f, _ = find(examine(t, []string{"steps.warmup=300", "modelled.train.utilization=1.5"}), "train-bound")
	if f.File != "--set" {
		t.Errorf("placed at %q:%d", f.File, f.Line)
	}
}

// A rule is relaxed as far as the document's budget allows.
func TestRelaxedWithinTheBudget(t *testing.T) {
	setting := []string{threeLong, "modelled.train.utilization=1.5", "queue={policy: bounded, eta: 0}"}
	free, _ := find(examineFor(t, setting, "trainer-idle"), "trainer-idle")
	bound, _ := find(examineFor(t, append(setting, "budget.staleness_mean=0.5"), "trainer-idle"), "trainer-idle")
	a, b := figure(t, free, "trainer_idle_share_relaxed"), figure(t, bound, "trainer_idle_share_relaxed")
	if free.Key != keyEta || bound.Key != keyEta || bound.Severity != Warning || b < a+0.05 || strings.Contains(free.Do, "budget") || !strings.Contains(bound.Do, "up to the budget.staleness_mean of 0.5") {
		t.Errorf("without a budget %+v, with one %+v", free, bound)
	}
}

// The same case gives the same bytes.
func TestRepeats(t *testing.T) {
	first := examineAnew(t, []string{threeLong, "modelled.train.utilization=1.4"})
	if again := examineAnew(t, []string{threeLong, "modelled.train.utilization=1.4"}); !reflect.DeepEqual(first, again) {
		t.Errorf("%+v\nthen %+v", first, again)
	}
}

// What doctor cannot explain stays config's error.
func TestRefutedExplainsAllOrNothing(t *testing.T) {
	for _, overrides := range [][]string{
		{"train.batch=65", "rollout.concurrency=0"},
		{"train.batch=0"},
		{"rollout.group_size=0"},
		{"queue={policy: max, max_staleness: 0}", "modelled.sync.time_s=2", "evaluate.prompts=2000"},
	} {
		d, err := resolved(t, overrides...)
		if findings, all := Refuted(d, err); err == nil || all || findings != nil {
			t.Errorf("%q: %v, explained by %v", overrides, err, findings)
		}
	}
}

func TestFiguresKeepTheirOrder(t *testing.T) {
	text, err := json.Marshal(Figures{{"z", 1.23456789}, {"a", 3}, {"tiny", 1.23456789e-9}, {"large", 123456789.25}, {"none", 0}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"z":1.23457,"a":3,"tiny":1.23457e-9,"large":123457000,"none":0}`; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestWords(t *testing.T) {
	got := []string{percent(0), percent(0.0004), percent(0.0412), percent(0.412), percent(1), short(0.123456), short(12), short(1234.5), plural(1, "version"), plural(2, "version")}
	want := []string{"0.0 %", "0.04 %", "4.1 %", "41 %", "100 %", "0.123", "12", "1234", "1 version", "2 versions"}
	if !slices.Equal(got, want) {
		t.Errorf("%s, want %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}
