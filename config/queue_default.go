package config

import "reflect"

// boundDefaults gives policy bounded to a document whose rollouts this program makes and that says nothing of its
// queue, or the bound alone. A trainer that has not come yet is waited for then. A document with a model of its train step is simulated, and keeps the published rule, drop. See docs/decisions/0033.
func (c *Config) boundDefaults() {
	if !c.rollsOutHere() || c.Preset != "" || c.Controlled() || c.modelsTraining() {
		return
	}
	if c.saysOfQueue() {
		return
	}
	c.Queue.Policy = "bounded"
	orNumber(&c.Queue.Eta, c.etaDefault(), c.given("queue.eta"))
}

// saysOfQueue reports whether the document has any key of the queue but the bound, which is bounded's alone.
func (c *Config) saysOfQueue() bool {
	for _, known := range fieldsOf(reflect.TypeFor[Queue]()) {
		if known.key == "eta" {
			continue
		}
		if _, given := c.givenUnder(join("queue", known.key)); given || !reflect.ValueOf(c.Queue).Field(known.index).IsZero() {
			return true
		}
	}
	return false
}

// etaDefault is one version, and those that engines fall behind between two syncs. Engines that compute on the trainer's
// processors lose nothing by waiting. Rollouts that wait for a clock lose time, so that all slots may be a batch ahead.
func (c *Config) etaDefault() float64 {
	eta := float64(max(c.Sync.Every, 1))
	waits := c.Environment.ServiceTime.Kind != "none"
	for _, e := range c.Engines {
		waits = waits || e.DecodeStepS > 0
	}
	if waits && c.Train.Batch > 0 {
		eta += float64(c.Rollout.Concurrency) / float64(c.Train.Batch)
	}
	return eta
}

// rollsOutHere reports whether engines and environment are all of this program, whoever trains.
func (c *Config) rollsOutHere() bool {
	embedded := func(kind string) bool { return kind == "" || kind == "embedded" }
	for _, e := range c.Engines {
		if !embedded(e.Kind) {
			return false
		}
	}
	return embedded(c.Environment.Kind)
}

// modelsTraining reports whether the document is one to simulate or to plan.
func (c *Config) modelsTraining() bool {
	t := c.Modelled.Train
	return t.Utilization != 0 || t.StepS != 0 || t.ThroughputTokensPerS != 0 || !reflect.ValueOf(c.Hardware).IsZero()
}
