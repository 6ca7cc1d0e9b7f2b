package pool

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/env/sandbox"
)

// metric is one series of a pool, or one for every class.
func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("headway_sandbox_"+name, help, labels, nil)
}

// What a pool exports.
var (
	leasedDesc   = metric("leased", "Sandboxes that a rollout has.")
	warmDesc     = metric("warm", "Sandboxes that stand ready.")
	startingDesc = metric("starting", "Sandboxes that are being started.")
	waitingDesc  = metric("waiting", "Rollouts that wait for a sandbox.")
	createdDesc  = metric("created_total", "New sandboxes handed out.")
	reusedDesc   = metric("reused_total", "Sandboxes handed out that had been used before.")
	hitsDesc     = metric("hits_total", "Sandboxes handed out that stood ready.")
	startDesc    = metric("start_seconds", "Time of the starts of sandboxes that came up.")
	waitDesc     = metric("wait_seconds", "Time from a rollout's first use of its sandbox until it is there.")
	failuresDesc = metric("failures_total", "Starts and commands that failed through no fault of the policy, by class.", "class")
	limitsDesc   = metric("limits_total", "Commands that met a limit of their sandbox, by limit.", "class")
	orphansDesc  = metric("orphans_total", "Sandboxes that an earlier process left behind, removed at the start.")
	brokenDesc   = metric("broken", "1 while the backend is held to be sick and no sandbox is started.")
)

// bounds of the histograms' bins, in seconds.
var bounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// Describe implements prometheus.Collector.
func (p *Pool) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leasedDesc, warmDesc, startingDesc, waitingDesc, createdDesc, reusedDesc, hitsDesc,
		startDesc, waitDesc, failuresDesc, limitsDesc, orphansDesc, brokenDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Pool) Collect(ch chan<- prometheus.Metric) {
	s := p.Status()
	broken := 0.0
	if s.Broken {
		broken = 1
	}
	for desc, value := range map[*prometheus.Desc]float64{leasedDesc: float64(s.Leased), warmDesc: float64(s.Warm),
		startingDesc: float64(s.Starting), waitingDesc: float64(s.Waiting), brokenDesc: broken} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	for desc, value := range map[*prometheus.Desc]int64{createdDesc: s.Created, reusedDesc: s.Reused, hitsDesc: s.Hits, orphansDesc: s.Orphans} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	byClass(ch, failuresDesc, p.counts.failures)
	byClass(ch, limitsDesc, p.counts.limits)
	for desc, h := range map[*prometheus.Desc]*times{startDesc: &p.counts.start, waitDesc: &p.counts.wait} {
		ch <- prometheus.MustNewConstHistogram(desc, uint64(h.count), h.sumS, h.cumulative(bounds))
	}
}

func byClass(ch chan<- prometheus.Metric, desc *prometheus.Desc, counts map[sandbox.Class]int64) {
	for _, class := range slices.Sorted(maps.Keys(counts)) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(counts[class]), string(class))
	}
}
