package config

import (
	"reflect"
	"slices"
)

// The defaults of a plan's sections, by key.
const (
	promptTokensDefault = 512
	batchMinDefault     = 64
	finalistsDefault    = 20
	trainUnitsDefault   = 16   // units that a fleet is divided into
	trainUnitMax        = 8    // a machine
	networkDefault      = 50e9 // bytes per second: 400 Gb/s
	correlationDefault  = 0.2
	stalenessDefault    = 4 // versions: the lower end of what is published as tolerable, 4 to 8
)

// planningDefaults fills in the sections of a plan in a document that has any of
// them; others stay as they are.
func (c *Config) planningDefaults() {
	if c.hasPlan() {
		c.hardwareDefaults()
		c.searchDefaults()
	}
}

// hasPlan reports whether a section of a plan says anything.
func (c Config) hasPlan() bool {
	return slices.ContainsFunc([]any{c.Hardware, c.Prices, c.Budget, c.Search}, func(section any) bool {
		return !reflect.ValueOf(section).IsZero()
	})
}

// hardwareDefaults fills in how well GPUs are used.
func (c *Config) hardwareDefaults() {
	const path = "hardware."
	h := &c.Hardware
	if h.TrainGPUsUnit == 0 && h.GPUs > 0 {
		// A small fleet is divided finely: sharded trainers run on any number.
		h.TrainGPUsUnit = min(max(h.GPUs/trainUnitsDefault, 1), trainUnitMax)
	}
	if c.given("modelled.prompt_tokens") {
		orNumber(&h.PromptTokens, float64(c.Modelled.PromptTokens), c.given(path+"prompt_tokens"))
	} else {
		orNumber(&h.PromptTokens, promptTokensDefault, c.given(path+"prompt_tokens"))
	}
	orNumber(&h.WeightBytes, 2, false)
	orNumber(&h.KVBytes, 2, false)
	orNumber(&h.MemoryUse, 0.9, false)
	orNumber(&h.PrefillUse, 0.5, false)
	if !c.given(path + "recompute") {
		h.Recompute = true
	}
	orNumber(&h.NetworkBytesPerS, networkDefault, false)
	orWord(&c.Prices.Currency, "USD")
}

// searchDefaults fills in what is searched for; lists stay the plan's choice.
func (c *Config) searchDefaults() {
	s := &c.Search
	orWord(&s.Prefer, "speed")
	if s.BatchMin == 0 {
		s.BatchMin = batchMinDefault
		if c.given("train.batch") && c.Train.Batch > 0 {
			s.BatchMin = min(s.BatchMin, c.Train.Batch)
		}
		if len(s.Batch) > 0 { // what is asked for is useful
			s.BatchMin = min(s.BatchMin, slices.Min(s.Batch))
		}
	}
	orCount(&s.Finalists, finalistsDefault, false)
	orNumber(&s.RewardCorrelation, correlationDefault, c.given("search.reward_correlation"))
}

// ForPlan returns a copy with the defaults of a plan's sections, checked. The
// error is an [Errors].
func (c Config) ForPlan() (Config, error) {
	c = c.clone()
	c.hardwareDefaults()
	c.searchDefaults()
	if c.Budget == (Budget{}) {
		c.Budget.StalenessMean = stalenessDefault
	}
	v := validator{config: c}
	v.planning()
	return c, v.errs.orNil()
}

// Given reports whether the document, an override or a preset gave the key at a
// dotted path. A plan can so tell a choice from a default.
func (c Config) Given(path string) bool { return c.given(path) }
