package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Validate reports everything a resolved Config cannot be run, simulated or
// predicted with, as an [Errors]. It changes nothing. A Config without its
// defaults does not pass: see [Config.Resolve].
func (c Config) Validate() error { return c.validate(true).orNil() }

// validate checks every value, and the relations between them where asked and
// where the values themselves are sound.
func (c Config) validate(relations bool) Errors {
	check := validator{config: c}
	check.section(document, reflect.ValueOf(c), "")
	if relations && len(check.errs) == 0 {
		check.rollout()
		check.rates()
		check.models()
		check.queue()
		check.starvation()
		check.run()
	}
	return check.errs
}

// validator collects errors about one Config.
type validator struct {
	config Config
	errs   Errors
}

// fail notes that the key at a path cannot be what it is.
func (v *validator) fail(path string, value any, problem, allowed string) {
	v.errs = append(v.errs, v.config.problem(path, valueText(value), problem, allowed))
}

// valueText prints a value for a message.
func valueText(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case float64:
		return number(value)
	case string:
		return strconv.Quote(value)
	}
	return fmt.Sprint(value)
}

// section checks the values of a section against the schema.
func (v *validator) section(fields []field, section reflect.Value, path string) {
	for _, known := range fields {
		v.value(known, section.Field(known.index), join(path, known.key))
	}
}

// value checks one value, or each of a list's.
func (v *validator) value(known field, value reflect.Value, path string) {
	switch value.Kind() {
	case reflect.Struct:
		if path == "environment.service_time" && reflect.DeepEqual(value.Interface(), v.config.Rollout.Environment) {
			return // checked as rollout.environment
		}
		v.section(known.fields, value, path)
		return
	case reflect.Slice:
		for i := range value.Len() {
			v.value(known, value.Index(i), join(path, strconv.Itoa(i)))
		}
		return
	}
	if known.unset && value.IsZero() && !v.config.given(path) {
		return
	}
	if slices.Contains(known.later, "*") {
		if !value.IsZero() {
			v.fail(path, value.Interface(), "is not available yet", "leave it out")
		}
		return
	}
	switch value.Kind() {
	case reflect.String:
		v.word(known, value.String(), path)
	case reflect.Int:
		v.number(known, float64(value.Int()), path)
	case reflect.Float64:
		v.number(known, value.Float(), path)
	}
}

// word checks a word against the schema's.
func (v *validator) word(known field, word, path string) {
	if len(known.words) == 0 || slices.Contains(known.words, word) {
		return
	}
	err := v.config.problem(path, strconv.Quote(word), "is not allowed", strings.Join(known.words, ", "))
	if slices.Contains(known.later, word) {
		err.Problem = "is not available yet"
	} else {
		err.Nearest = nearest(word, known.words)
	}
	v.errs = append(v.errs, err)
}

// number checks a number against the schema's range.
func (v *validator) number(known field, value float64, path string) {
	if math.IsNaN(value) || math.IsInf(value, 0) || !known.inRange(value) {
		v.fail(path, value, "is not allowed", known.rangeText())
	}
}

// rollout checks the counts that must fit into one another.
func (v *validator) rollout() {
	c := v.config
	group, batch := c.Rollout.GroupSize, c.Train.Batch
	if batch%group != 0 {
		v.fail("train.batch", batch, fmt.Sprintf("is not a multiple of rollout.group_size (%d)", group), multiplesNear(batch, group))
	}
	if c.Rollout.Start == "gang" && c.Rollout.Concurrency < group {
		v.fail("rollout.concurrency", c.Rollout.Concurrency,
			fmt.Sprintf("is below rollout.group_size (%d): with start gang no group would ever find its slots", group),
			fmt.Sprintf("at least %d, or start stream", group))
	}
	slots := 0
	for _, engine := range c.Engines {
		slots += engine.Slots
	}
	if slots != c.Rollout.Concurrency {
		v.fail("engines", nil, fmt.Sprintf("have %d slots in all, but rollout.concurrency is %d", slots, c.Rollout.Concurrency),
			"slots that add up to it, or leave one of the two out")
	}
	if c.Filter.ZeroAdvantage && group == 1 {
		v.fail("filter.zero_advantage", true, "filters every group when rollout.group_size is 1: nothing would ever be trained",
			"false, or a group_size of at least 2")
	}
}

// multiplesNear names the multiples around a number.
func multiplesNear(value, unit int) string {
	below := value / unit * unit
	if below == 0 {
		return strconv.Itoa(unit)
	}
	return fmt.Sprintf("such as %d or %d", below, below+unit)
}

// rates checks that a speed is said at most once.
func (v *validator) rates() {
	c := v.config
	v.exclusive("rollout", map[string]float64{
		"decode_tokens_per_s": c.Rollout.DecodeTokensPerS, "throughput_tokens_per_s": c.Rollout.ThroughputTokensPerS})
	v.exclusive("train", map[string]float64{
		"utilization": c.Train.Utilization, "step_s": c.Train.StepS, "throughput_tokens_per_s": c.Train.ThroughputTokensPerS})
}

// exclusive refuses a second value for the same thing.
func (v *validator) exclusive(section string, values map[string]float64) {
	var set []string
	for key, value := range values {
		if value != 0 {
			set = append(set, key)
		}
	}
	slices.Sort(set)
	if len(set) > 1 {
		path := join(section, set[1])
		v.fail(path, values[set[1]], "says again what "+join(section, set[0])+" says", "one of "+strings.Join(set, ", "))
	}
}

// models checks the length and service-time models.
func (v *validator) models() {
	c := v.config
	if !v.unused("rollout.length", "kind", c.Rollout.Length.Kind, lengthKeys) {
		v.model("rollout.length", c.Rollout.Length.spec().Validate())
	}
	if !v.unused("rollout.environment", "kind", c.Rollout.Environment.Kind, serviceKeys) {
		v.model("rollout.environment", c.Rollout.Environment.spec().Validate())
	}
	if !reflect.DeepEqual(c.Rollout.Environment, c.Environment.ServiceTime) {
		v.fail("environment.service_time", nil, "differs from rollout.environment, which is the same thing for simulations",
			"give one of the two, or both alike")
	}
}

// unused refuses keys that the value of the section's chooser does not use, and
// reports whether there were any.
func (v *validator) unused(section, chooser, choice string, keys map[string][]string) (found bool) {
	for _, key := range known(section) {
		if key.key == chooser || slices.Contains(keys[choice], key.key) || !v.config.given(join(section, key.key)) {
			continue
		}
		var users []string
		for _, word := range sorted(keys) {
			if slices.Contains(keys[word], key.key) {
				users = append(users, word)
			}
		}
		v.fail(join(section, key.key), nil, fmt.Sprintf("has no effect with %s %s", chooser, choice),
			fmt.Sprintf("leave it out, or %s %s", chooser, strings.Join(users, ", ")))
		found = true
	}
	return found
}

// known returns the schema of the section at a path.
func known(path string) []field {
	fields := document
	for _, key := range strings.Split(path, ".") {
		section, ok := find(fields, key)
		if !ok {
			panic("config: no section " + path)
		}
		fields = section.fields
	}
	return fields
}

// queue checks capacity, budget and what goes with a policy.
func (v *validator) queue() {
	c := v.config
	if c.Schedule == synchronousSchedule {
		return
	}
	v.unused("queue", "policy", c.Queue.Policy, queueKeys)
	if capacity := c.Queue.Capacity; capacity != 0 {
		group := c.Rollout.GroupSize
		switch {
		case c.Queue.Factor != 0:
			v.fail("queue.capacity", capacity, "says again what queue.factor says", "one of factor, capacity")
		case capacity < c.Train.Batch:
			v.fail("queue.capacity", capacity, fmt.Sprintf("is below train.batch (%d): no batch would ever fill", c.Train.Batch),
				fmt.Sprintf("at least %d", c.Train.Batch))
		case capacity%group != 0:
			v.fail("queue.capacity", capacity, fmt.Sprintf("is not a multiple of rollout.group_size (%d)", group), multiplesNear(capacity, group))
		}
	}
	if c.Queue.Policy == "max" && c.origin != nil && !c.given("queue.max_staleness") {
		v.fail("queue.max_staleness", nil, "is missing: policy max needs a budget", "the largest staleness in versions a trained group may have")
	}
}

// starvation refuses budgets under which no group can ever be fresh enough.
//
// With a sync every K steps the trainer is up to K-1 versions ahead of what
// engines serve, and one more while a sync takes time and the trainer is free
// to go on. A group generated then starts with that staleness: under a smaller
// budget every one of them is discarded, and since the trainer is the only one
// to bring the next sync, the run stands still (K > 1) or trains on nothing
// that was generated meanwhile.
func (v *validator) starvation() {
	c := v.config
	if c.Schedule == synchronousSchedule || c.Queue.Policy != "max" {
		return
	}
	behind, why := c.Sync.Every-1, fmt.Sprintf("with sync.every %d engines fall %d versions behind the trainer", c.Sync.Every, c.Sync.Every-1)
	if c.Sync.TimeS > 0 && c.Sync.Trainer == "free" {
		behind++
		why = fmt.Sprintf("with sync.every %d and a sync that takes time while the trainer is free, engines fall %d versions behind it", c.Sync.Every, behind)
	}
	budget := c.Queue.MaxStaleness
	switch {
	case budget < behind:
		v.fail("queue.max_staleness", budget, "starves the trainer: "+why, fmt.Sprintf("at least %d, or schedule synchronous", behind))
	case budget == 0 && c.Queue.Abort:
		v.fail("queue.max_staleness", budget, "with abort cancels every rollout that starts while a train step runs",
			"at least 1, or abort false, or schedule synchronous")
	}
}

// run checks the sections of a run.
func (v *validator) run() {
	c := v.config
	if c.Model.Width%c.Model.Heads != 0 {
		v.fail("model.width", c.Model.Width, fmt.Sprintf("is not a multiple of model.heads (%d)", c.Model.Heads), multiplesNear(c.Model.Width, c.Model.Heads))
	}
	if c.Environment.LettersMin > c.Environment.LettersMax {
		v.fail("environment.letters_min", c.Environment.LettersMin, fmt.Sprintf("is above environment.letters_max (%d)", c.Environment.LettersMax),
			fmt.Sprintf("at most %d", c.Environment.LettersMax))
	}
	if c.Evaluate.Prompts > c.Environment.HeldOut {
		v.fail("evaluate.prompts", c.Evaluate.Prompts, fmt.Sprintf("is above environment.held_out (%d)", c.Environment.HeldOut),
			fmt.Sprintf("at most %d", c.Environment.HeldOut))
	}
	names := map[string]bool{}
	for i, engine := range c.Engines {
		if names[engine.Name] {
			v.fail(fmt.Sprintf("engines.%d.name", i), engine.Name, "is the name of another engine", "a name of its own")
		}
		names[engine.Name] = true
	}
}
