package config

import (
	"maps"
	"strings"
)

// place is where and how a key was given.
type place struct {
	file         string
	line, column int
	text         string // the value as written, shortened; "" for a section
}

// overrideFile is the File of errors about an override.
const overrideFile = "--set"

// origin maps the dotted path of every given key to its place. It is never
// changed once a Config holds it; a changed Config holds a changed copy.
type origin struct {
	name   string // the document's name
	places map[string]place
}

// given reports whether the document or an override gave the key at a path.
func (c Config) given(path string) bool {
	if c.origin == nil {
		return false
	}
	_, ok := c.origin.places[path]
	return ok
}

// together reports whether two keys were given in the same document, rather
// than one of them by an override that may well replace the sense of the other.
func (c Config) together(path, other string) bool {
	return c.given(path) && c.given(other) && c.origin.places[path].file == c.origin.places[other].file
}

// overridden reports whether an override gave a key, or any key under it.
func (c Config) overridden(path string) bool {
	if c.origin == nil {
		return false
	}
	for known, at := range c.origin.places {
		if at.file == overrideFile && (known == path || strings.HasPrefix(known, path+".")) {
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
	err.File = c.origin.name
	for around := path; around != ""; around = parent(around) {
		if at, ok := c.origin.places[around]; ok {
			err.File, err.Line, err.Column = at.file, at.line, at.column
			if around == path && at.text != "" {
				err.Value = at.text
			}
			break
		}
	}
	return err
}

// forget removes a path and everything under it.
func (o *origin) forget(path string) {
	maps.DeleteFunc(o.places, func(known string, _ place) bool {
		return known == path || strings.HasPrefix(known, path+".")
	})
}

// parent is the path of the section around a key, "" at the top.
func parent(path string) string {
	return path[:max(0, strings.LastIndexByte(path, '.'))]
}
