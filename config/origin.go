package config

import (
	"maps"
	"reflect"
	"strings"
)

// rank is how strongly a key was given: of two keys that exclude each other, or
// of two values of one key, the higher rank is what the user wants.
type rank uint8

const (
	rankPreset         rank = iota // by the preset that the document names
	rankDocument                   // by the document
	rankPresetOverride             // by a preset that an override names
	rankOverride                   // by an override
)

// place is where and how a key was given.
type place struct {
	file         string
	rank         rank
	line, column int
	text         string // the value as written, shortened; "" for a section
	entry        string // of an engine: the path of the entry with a count or a range that stands for it, else ""
}

// overrideFile is the File of errors about an override that no flag stands for.
const overrideFile = "--set"

// origin maps the dotted path of every given key to its place. It is never
// changed once a Config holds it; a changed Config holds a changed copy.
type origin struct {
	name   string // the document's name
	text   []byte // the document, nil where a program made it
	places map[string]place
	// replaced are the keys whose values the schedule replaced against what was given.
	replaced map[string]place
}

// given reports whether the document, an override or a preset gave the key at a path.
func (c Config) given(path string) bool {
	if c.origin == nil {
		return false
	}
	_, ok := c.origin.places[path]
	return ok
}

// rankOf returns how strongly a key was given, false when it was not. What a
// program set in a Config counts as a document.
func (c Config) rankOf(path string) (rank, bool) {
	if c.given(path) {
		return c.origin.places[path].rank, true
	}
	_, value, err := locate(path, reflect.ValueOf(&c).Elem())
	return rankDocument, err == nil && !value.IsZero()
}

// givenUnder returns a path itself if it was given, otherwise the first key under
// it that was: a section can be given by dotted keys alone.
func (c Config) givenUnder(path string) (string, bool) {
	if c.given(path) || c.origin == nil {
		return path, c.given(path)
	}
	first := ""
	for known := range c.origin.places {
		if strings.HasPrefix(known, path+".") && (first == "" || known < first) {
			first = known
		}
	}
	return first, first != ""
}

// together reports whether two keys were given alike, rather than one of them
// by an override that may well replace the sense of the other.
func (c Config) together(path, other string) bool {
	return c.given(path) && c.given(other) && c.origin.places[path].rank == c.origin.places[other].rank
}

// replace notes what the schedule replaces under a path, a section or a value: the
// keys that say something else than its own value and were given no less strongly
// than the schedule. Nothing remains given there.
func (c *Config) replace(path string, section any) {
	chosen, _ := c.rankOf("schedule")
	for known, at := range c.origin.places {
		if !below(known, path) || at.rank < chosen {
			continue
		}
		_, have, err := locate(known, reflect.ValueOf(c).Elem())
		if err != nil || have.Kind() == reflect.Struct {
			continue
		}
		changed := Config{}
		_, whole, err := locate(path, reflect.ValueOf(&changed).Elem())
		if err != nil {
			panic("config: " + err.Error())
		}
		whole.Set(reflect.ValueOf(section))
		if _, own, err := locate(known, reflect.ValueOf(&changed).Elem()); err == nil && !reflect.DeepEqual(have.Interface(), own.Interface()) {
			if c.origin.replaced == nil {
				c.origin.replaced = map[string]place{}
			}
			c.origin.replaced[known] = at
		}
	}
	c.origin.forget(path)
	_, target, err := locate(path, reflect.ValueOf(c).Elem())
	if err != nil {
		panic("config: " + err.Error())
	}
	target.Set(reflect.ValueOf(section))
}

// overridden reports whether an override gave a key, or any key under it.
func (c Config) overridden(path string) bool {
	if c.origin == nil {
		return false
	}
	for known, at := range c.origin.places {
		if at.rank == rankOverride && below(known, path) {
			return true
		}
	}
	return false
}

// problem builds an error about a key, at the place of the key or, where it was
// not given, of the nearest section around it that was.
func (c Config) problem(path, value, problem, allowed string) *Error {
	err := &Error{Key: path, Value: value, Problem: problem, Allowed: allowed}
	if c.origin == nil {
		return err
	}
	at := c.placeOf(path)
	err.Key, err.replicated = c.origin.asWritten(path), c.origin.entryOf(path) != ""
	err.File, err.Line, err.Column, err.document = at.file, at.line, at.column, c.origin.text
	if c.given(path) && at.text != "" {
		err.Value = at.text
	}
	err.derived = at == place{file: c.origin.name}
	return err
}

// placeOf returns the place of a key or, where it was not given, of the nearest
// section around it that was; in the end the document.
func (c Config) placeOf(path string) place {
	if c.origin == nil {
		return place{}
	}
	for around := path; around != ""; around = parent(around) {
		if at, ok := c.origin.places[around]; ok {
			return at
		}
	}
	return place{file: c.origin.name}
}

// forget removes a path and everything under it.
func (o *origin) forget(path string) {
	maps.DeleteFunc(o.places, func(known string, _ place) bool {
		return below(known, path)
	})
}

// parent is the path of the section around a key, "" at the top.
func parent(path string) string {
	return path[:max(0, strings.LastIndexByte(path, '.'))]
}

// below reports whether a key is another one, or in its section.
func below(key, section string) bool { return key == section || strings.HasPrefix(key, section+".") }
