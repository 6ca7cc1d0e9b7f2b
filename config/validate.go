package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
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
	check.replicas()
	check.errs = check.errs.withoutFollowing()
	if relations && len(check.errs) == 0 {
		check.preset()
		check.rollout()
		check.rates()
		check.models()
		check.queue()
		check.starvation()
		check.shaping()
		check.control()
		check.fleet()
		check.correction()
		check.run()
		check.agents()
		check.planning()
		check.server()
		check.engineServers()
		check.environments()
		check.sinks()
		check.scoring()
	} else {
		check.addresses()
	}
	if relations && len(check.errs) == 0 {
		check.loop()
	}
	return check.errs.onceAnEntry()
}

// loop is the last check: whatever else the loop refuses is refused here. What
// comes this far has no key of its own to blame.
func (v *validator) loop() {
	if err := v.config.LoopConfig().WithDefaults().Validate(); err != nil {
		placed := v.config.problem("", "", "describes no loop: "+strings.ReplaceAll(err.Error(), "\n", "; "), "")
		placed.Cause = err
		v.errs = append(v.errs, placed)
	}
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
		if path == "modelled.environment" && v.modelledAsIs() {
			return // checked as environment.service_time
		}
		if _, given := v.config.givenUnder(path); known.unset && value.IsZero() && !given {
			return
		}
		v.section(known.fields, value, path)
		return
	case reflect.Slice:
		if known.fields == nil {
			known.unset = false // an element that is there is given
		}
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
		err.Nearest = spelling.Nearest(word, known.words)
	}
	if path == "environment.task" && v.config.Environment.Kind == "remote" && err.Nearest == "" {
		err.Problem += ": environment.name has the name that workers play"
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
	if redundant := c.Rollout.Redundancy; redundant > groupSizeMax-group {
		v.fail("rollout.redundancy", redundant, fmt.Sprintf("makes groups of more than %d rollouts", groupSizeMax), fmt.Sprintf("at most %d", groupSizeMax-group))
	}
	if started := group + c.Rollout.Redundancy; c.Rollout.Start == "gang" && c.Rollout.Concurrency < started {
		what := fmt.Sprintf("rollout.group_size (%d)", group)
		if c.Rollout.Redundancy > 0 {
			what = fmt.Sprintf("rollout.group_size and redundancy (%d)", started)
		}
		v.fail("rollout.concurrency", c.Rollout.Concurrency, "is below "+what+": with start gang no group would ever find its slots",
			fmt.Sprintf("at least %d, or start stream", started))
	}
	if c.Rollout.Oversample > 1 && c.Schedule != synchronousSchedule {
		v.fail("rollout.oversample", c.Rollout.Oversample, "has no effect with schedule asynchronous"+c.presetNote("schedule")+": its engines are never short of groups",
			"1, or schedule synchronous")
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

// groupSizeMax bounds the rollouts of one group, as the loop does.
const groupSizeMax = 1 << 16

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
	v.exclusive("modelled", map[string]float64{
		"decode_tokens_per_s": c.Modelled.DecodeTokensPerS, "throughput_tokens_per_s": c.Modelled.ThroughputTokensPerS})
	v.exclusive("modelled.train", map[string]float64{
		"utilization": c.Modelled.Train.Utilization, "step_s": c.Modelled.Train.StepS, "throughput_tokens_per_s": c.Modelled.Train.ThroughputTokensPerS})
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
	if c.Modelled.Sessions != "" {
		v.sessions()
	} else if !v.unused("modelled.length", "kind", c.Modelled.Length.Kind, lengthKeys) {
		v.model("modelled.length", c.Modelled.Length.spec().Validate())
	}
	if !v.modelledAsIs() && !v.unused("modelled.environment", "kind", c.Modelled.Environment.Kind, serviceKeys) {
		v.model("modelled.environment", c.Modelled.Environment.spec().Validate())
	}
	if !v.unused("modelled.solve", "kind", c.Modelled.Solve.Kind, solveKeys) {
		v.model("modelled.solve", c.Modelled.Solve.spec().Validate())
	}
	if !v.unused("environment.service_time", "kind", c.Environment.ServiceTime.Kind, serviceKeys) {
		v.model("environment.service_time", c.Environment.ServiceTime.spec().Validate())
	}
}

// modelledAsIs reports whether simulations reckon with the environment's time of a run.
func (v *validator) modelledAsIs() bool {
	return reflect.DeepEqual(v.config.Modelled.Environment, v.config.Environment.ServiceTime)
}

// unused refuses keys that the value of the section's chooser does not use, and
// reports whether there were any.
func (v *validator) unused(section, chooser, choice string, keys map[string][]string) (found bool) {
	for _, key := range known(section) {
		said, given := v.config.givenUnder(join(section, key.key))
		if v.empty(said, key, given) {
			found = true
			continue
		}
		if key.key == chooser || slices.Contains(keys[choice], key.key) || !given {
			continue
		}
		var users []string
		for _, word := range sorted(keys) {
			if slices.Contains(keys[word], key.key) {
				users = append(users, word)
			}
		}
		v.fail(said, nil, fmt.Sprintf("has no effect with %s %s%s", chooser, choice, v.config.presetNote(join(section, chooser))),
			fmt.Sprintf("leave it out, or %s %s", chooser, strings.Join(users, ", ")))
		found = true
	}
	return found
}

// empty refuses a list that was given and has nothing in it, which would read as
// one that was not given, and reports whether it did.
func (v *validator) empty(path string, known field, given bool) bool {
	if !given || known.kind.Kind() != reflect.Slice {
		return false
	}
	_, list, err := locate(path, reflect.ValueOf(&v.config).Elem())
	if err != nil || list.Len() > 0 {
		return false
	}
	allowed := "at least one number"
	switch known.kind {
	case reflect.TypeFor[[][]int]():
		allowed = "at least one prompt's lengths"
	case reflect.TypeFor[[][]float64]():
		allowed = "at least one prompt's times"
	}
	v.fail(path, nil, "is empty", allowed+", or leave it out")
	return true
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

// run checks the sections of a run.
func (v *validator) run() {
	c := v.config
	if c.Model.Width%c.Model.Heads != 0 {
		v.fail("model.width", c.Model.Width, fmt.Sprintf("is not a multiple of model.heads (%d)", c.Model.Heads), multiplesNear(c.Model.Width, c.Model.Heads))
	}
	if groups := c.BatchGroups(); c.Trainer.Minibatches > groups && groups > 0 { // a batch below one group is said by itself
		v.fail("trainer.minibatches", c.Trainer.Minibatches, fmt.Sprintf("is more than the groups of a batch (%d), of which each needs one", groups), fmt.Sprintf("at most %d", groups))
	}
	if c.Environment.LettersMin > c.Environment.LettersMax {
		v.fail("environment.letters_min", c.Environment.LettersMin, fmt.Sprintf("is above environment.letters_max (%d)", c.Environment.LettersMax),
			fmt.Sprintf("at most %d", c.Environment.LettersMax))
	}
	// An evaluation that occupies something is a simulation's, which has no prompts;
	// a run checks its own.
	if occupies := c.Modelled.Evaluate.Occupies; c.Evaluate.Prompts > c.Environment.HeldOut && occupies != "engines" && occupies != "trainer" {
		v.fail("evaluate.prompts", c.Evaluate.Prompts, fmt.Sprintf("is above environment.held_out (%d)", c.Environment.HeldOut),
			fmt.Sprintf("at most %d", c.Environment.HeldOut))
	}
	if least, size := c.Failures.GroupMin, c.Rollout.GroupSize; least > size && size > 0 {
		v.fail("failures.group_min", least, fmt.Sprintf("is above rollout.group_size (%d): no group could have them", size), fmt.Sprintf("at most %d", size))
	}
	v.idle("failures.group_min", c.Failures.GroupMin > 0 && c.Failures.OnFailure != "shrink", "with failures.on_failure drop_group, which ends a group with its first loss", "failures.on_failure shrink, or leave it out")
	v.idle("evaluate.slots", c.Evaluate.Slots > 0 && c.Environment.Kind == "embedded", "with environment.kind embedded: an engine answers its held-out prompts by itself", "leave it out, or another environment.kind")
	v.idle("evaluate.slots", c.Evaluate.Slots > 0 && c.Evaluate.Every == 0, "with evaluate.every 0", "evaluate.every of at least 1, or leave it out")
	names := map[string]bool{}
	for i, engine := range c.Engines {
		if key := fmt.Sprintf("engines.%d.name", i); names[engine.Name] && (c.origin.sameEntry(i, i-1) || c.origin.sameEntry(i, i+1)) {
			v.fail(key, nil, fmt.Sprintf("makes %q, which is the name of another engine", engine.Name), "names of their own")
		} else if names[engine.Name] {
			v.fail(key, engine.Name, "is the name of another engine", "a name of its own")
		}
		names[engine.Name] = true
	}
}
