package config

import (
	"fmt"
	"reflect"
	"strings"
)

// verlKey is what keys in verl's words say in Headway's.
type verlKey struct {
	// own is Headway's key, names are verl's.
	own   string
	names []string
	// value is own's value by them, nil where they do not say enough: lacks then says what, and what to do.
	value func(c *Config) any
	lacks func(c *Config) (problem, allowed string)
	// agrees, where it is not nil, replaces equality of the two.
	agrees func(c *Config) bool
}

// verlDefaults reads the keys in verl's words: what they say moves to Headway's
// own keys. Where one of those was given too, the higher rank is kept; at the
// same rank they must agree, and Validate names both where they do not.
func (c *Config) verlDefaults() {
	if c.Schedule == synchronousSchedule || c.Queue.Policy != "threshold" {
		return // they have no effect: Validate says so
	}
	c.readVerlKeys()
}

// readVerlKeys reads all of them.
func (c *Config) readVerlKeys() {
	c.verlMinibatches()
	for _, known := range verlKeys {
		c.readVerl(known)
	}
	for _, section := range []string{"queue.rollout", "queue.trainer"} {
		if _, value, err := locate(section, reflect.ValueOf(c).Elem()); err == nil && value.IsZero() {
			c.origin.forget(section)
		}
	}
}

// readVerl moves what one of verl's keys says.
func (c *Config) readVerl(known verlKey) {
	from, said := c.strongest(known.names)
	value := known.value(c)
	if !said || value == nil || !c.allowed(known.names) {
		return // nothing to read, or Validate refuses it
	}
	at, _ := c.rankOf(from)
	_, own, err := locate(known.own, reflect.ValueOf(c).Elem())
	if err != nil {
		panic("config: " + err.Error())
	}
	have, given := c.rankOf(known.own)
	switch {
	case !given || have < at:
		own.Set(reflect.ValueOf(value))
		place := c.placeOf(from)
		place.rank, place.text = at, ""
		c.origin.places[known.own] = place
	case have == at && !known.agreement(c):
		return
	}
	for _, name := range known.names {
		_, slot, err := locate(name, reflect.ValueOf(c).Elem())
		if err != nil {
			panic("config: " + err.Error())
		}
		slot.SetZero()
		c.origin.forget(name)
	}
}

// agreement reports whether Headway's key has the value that verl's give it.
func (k verlKey) agreement(c *Config) bool {
	if k.agrees != nil {
		return k.agrees(c)
	}
	_, own, err := locate(k.own, reflect.ValueOf(c).Elem())
	return err == nil && own.Interface() == k.value(c)
}

// strongest returns the name of the highest rank among those given.
func (c Config) strongest(names []string) (name string, given bool) {
	best := rankPreset
	for _, n := range names {
		if at, ok := c.rankOf(n); ok && (!given || at > best) {
			name, best, given = n, at, true
		}
	}
	return name, given
}

// allowed reports whether the values of the keys are within their ranges.
func (c Config) allowed(names []string) bool {
	for _, name := range names {
		schema, value, err := locate(name, reflect.ValueOf(&c).Elem())
		if err != nil {
			return false
		}
		if _, given := c.rankOf(name); given && value.CanInt() && !schema.inRange(float64(value.Int())) {
			return false
		}
	}
	return true
}

// verl refuses keys in verl's words that say otherwise than Headway's own.
func (v *validator) verl() {
	c := v.config
	if c.Queue.Policy != "threshold" {
		return
	}
	for _, known := range verlKeys {
		name, given := c.strongest(known.names)
		if !given {
			continue
		}
		if known.value(&c) == nil {
			problem, allowed := known.lacks(&c)
			v.fail(name, nil, problem, allowed)
			continue
		}
		if known.agreement(&c) {
			continue
		}
		_, own, _ := locate(known.own, reflect.ValueOf(&c).Elem())
		v.fail(name, nil, fmt.Sprintf("contradicts %s, which is %s: by %s it would be %v", known.own, valueText(own.Interface()),
			strings.Join(known.names, " and "), known.value(&c)), "leave out one of the two")
	}
}
