package config

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Load reads a document, applies overrides in order, fills in defaults and
// checks the result. The empty path stands for the empty document. The error
// is an [Errors] with every mistake found.
func Load(path string, overrides ...string) (Config, error) {
	return LoadWith(path, plainOverrides(overrides)...)
}

// Override is a KEY=VALUE with where it comes from.
type Override struct {
	// Flag stands for it in messages, such as --steps; "" for --set.
	Flag string
	// Text is KEY=VALUE, see [Config.Set].
	Text string
}

// LoadWith is [Load] for overrides that have flags of their own.
func LoadWith(path string, overrides ...Override) (Config, error) {
	text, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	raw, errs := parse(path, text, false)
	return raw.resolve(overrides, errs)
}

// plainOverrides are overrides given by --set.
func plainOverrides(texts []string) []Override {
	overrides := make([]Override, len(texts))
	for i, text := range texts {
		overrides[i].Text = text
	}
	return overrides
}

// Read reads a document as it is, without defaults or checks beyond its keys and
// types. A caller can so try several overrides on it. The empty path stands for
// the empty document. A document that it refuses is checked further: the error is
// an [Errors] with every value that is wrong by itself, too.
func Read(path string) (Config, error) {
	text, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	c, errs := parse(path, text, false)
	return c, c.withWrongValues(errs).orNil()
}

// withWrongValues adds to the mistakes in a document's keys those in its values, so
// that nobody has to mend one kind to be told of the other. A document without the
// former gets none of the latter: overrides may replace them yet.
func (c Config) withWrongValues(errs Errors) Errors {
	if len(errs) == 0 {
		return nil
	}
	for _, wrong := range c.WithDefaults().validate(false) {
		if c.given(wrong.Key) { // a default may be wrong for what was not understood
			errs = append(errs, wrong)
		}
	}
	return errs
}

// readFile reads a document's text, none for the empty path.
func readFile(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := readMost(path, documentBytesMax+1) // a device has no end
	if err != nil {
		problem := err.Error()
		if pathError, is := errors.AsType[*fs.PathError](err); is {
			problem = pathError.Err.Error()
		}
		return nil, Errors{{File: path, Problem: "cannot be read: " + problem, Cause: err}}
	}
	return text, nil
}

// readMost reads so many bytes of a file at most.
func readMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

// Parse reads a document from memory; name stands for it in messages. The
// document is as it was given: see [Config.Resolve].
func Parse(name string, text []byte) (Config, error) {
	c, errs := parse(name, text, false)
	return c, errs.orNil()
}

// parse is Parse with its errors as a list, and ParseRecorded where recorded is set. What was right is in the Config
// whatever else was wrong.
func parse(name string, text []byte, recorded bool) (Config, Errors) {
	c := Config{origin: &origin{name: name, text: text, places: map[string]place{}}}
	body, err := parseTree(name, text)
	if err != nil {
		return c, err.(Errors).in(text)
	}
	if isEmpty(body) {
		return c, nil
	}
	d := decoder{file: name, rank: rankDocument, origin: c.origin}
	if err := verlsOwn(name, body); err != nil {
		return c, Errors{err}.in(text)
	}
	if recorded {
		d.recorded = &c
	}
	d.section(body, document, reflect.ValueOf(&c).Elem(), "")
	return c, d.errs.in(text)
}

// Set returns a copy with overrides applied in order. Each is KEY=VALUE with a dotted key, such as train.batch=64 or
// engines.0.slots=8, and a value in YAML. A value of null takes the document's own back, and a section replaces the
// document's. Overrides belong before [Config.WithDefaults], because a default may follow from what they change.
func (c Config) Set(overrides ...string) (Config, error) {
	changed, errs := c.set(plainOverrides(overrides))
	return changed, changed.withWrongValues(errs).orNil()
}

// SetWith is [Config.Set] for overrides that have flags of their own.
func (c Config) SetWith(overrides ...Override) (Config, error) {
	changed, errs := c.set(overrides)
	return changed, errs.orNil()
}

// Resolve returns a copy with every default filled in, checked.
func (c Config) Resolve() (Config, error) { return c.resolve(nil, nil) }

// resolve applies overrides and defaults, and checks; errs is what was wrong
// before. Relations are checked only where all keys were right: behind a
// mistake they would mislead.
func (c Config) resolve(overrides []Override, errs Errors) (Config, error) {
	changed, wrong := c.set(overrides)
	errs = append(errs, wrong...)
	resolved := changed.WithDefaults()
	errs = append(errs, resolved.validate(len(errs) == 0)...)
	return resolved, errs.orNil()
}

// set is Set with its errors as a list.
func (c Config) set(overrides []Override) (Config, Errors) {
	changed := c.clone()
	var errs Errors
	for _, override := range overrides {
		d := decoder{file: cmp.Or(override.Flag, overrideFile), rank: rankOverride, origin: changed.origin}
		d.override(reflect.ValueOf(&changed).Elem(), override.Text)
		errs = append(errs, d.errs...)
	}
	return changed, errs
}

// clone copies a Config with everything it points to.
func (c Config) clone() Config {
	c.Engines = slices.Clone(c.Engines)
	c.Modelled.Length.Groups = slices.Clone(c.Modelled.Length.Groups)
	c.Modelled.Environment.Groups = slices.Clone(c.Modelled.Environment.Groups)
	c.Environment.ServiceTime.Groups = slices.Clone(c.Environment.ServiceTime.Groups)
	c.Modelled.DecodeCurve = slices.Clone(c.Modelled.DecodeCurve)
	for _, s := range []*TimeModel{&c.Modelled.Tools.Time, &c.Modelled.Sandbox.Start, &c.Modelled.Verifier.Time, &c.Modelled.Scorer.Time} {
		s.Groups = slices.Clone(s.Groups)
	}
	c.Failures.EnginePlan = slices.Clone(c.Failures.EnginePlan)
	c.Sandbox.Mounts, c.Scoring.Servers = slices.Clone(c.Sandbox.Mounts), slices.Clone(c.Scoring.Servers)
	if c.origin == nil {
		c.origin = &origin{places: map[string]place{}}
	} else {
		c.origin = &origin{name: c.origin.name, text: c.origin.text, places: maps.Clone(c.origin.places), replaced: maps.Clone(c.origin.replaced)}
	}
	return c
}

// override applies one KEY=VALUE to a Config.
func (d *decoder) override(target reflect.Value, override string) {
	key, value, ok := strings.Cut(override, "=")
	if !ok || key == "" || strings.TrimSpace(value) == "" {
		d.errs = append(d.errs, &Error{File: d.file, Value: strconv.Quote(override),
			Problem: "is not an override", Allowed: "KEY=VALUE, such as train.batch=64; null takes a key back"})
		return
	}
	known, place, err := locate(key, target)
	if err != nil {
		err.File = d.file
		d.errs = append(d.errs, err)
		return
	}
	body, parseErr := parseTree(d.file, []byte(value))
	if parseErr != nil {
		for _, err := range parseErr.(Errors) {
			err.Key, err.Value, err.Line, err.Column = key, strconv.Quote(value), 0, 0
			d.errs = append(d.errs, err)
		}
		return
	}
	if isEmpty(body) && value != "null" {
		d.errs = append(d.errs, &Error{File: d.file, Key: key, Value: strconv.Quote(value), Problem: "has no value"})
		return
	}
	if place.Kind() == reflect.Struct {
		place.SetZero() // a section replaces the section
	}
	before, said := place.Interface(), d.origin.places[key]
	d.value(body, known, place, key)
	if place.Kind() == reflect.String && said.rank == rankDocument && place.Interface() == before {
		d.origin.places[key] = said // it repeats the document, and takes nothing of what stands beside it back
	}
}

// locate follows a dotted key to its field. The index of a list's element may
// be one past the last, which appends.
func locate(path string, target reflect.Value) (field, reflect.Value, *Error) {
	fields, known := document, field{}
	parts := strings.Split(path, ".")
	for i := 0; i < len(parts); i++ {
		so := strings.Join(parts[:i], ".")
		if fields == nil {
			return field{}, target, &Error{File: overrideFile, Key: path, Problem: "unknown key: " + so + " has no keys under it"}
		}
		next, ok := find(fields, parts[i])
		if !ok {
			return field{}, target, unknownOverride(path, so, parts[i], strings.Join(parts[i+1:], "."), fields)
		}
		known, target, fields = next, target.Field(next.index), next.fields
		if known.fields != nil && known.kind.Kind() == reflect.Slice && i+1 < len(parts) {
			i++
			index, err := strconv.Atoi(parts[i])
			if err != nil || index < 0 || index > target.Len() {
				return field{}, target, &Error{File: overrideFile, Key: path, Value: strconv.Quote(parts[i]),
					Problem: "is not an index of " + known.key, Allowed: "0 to " + strconv.Itoa(target.Len())}
			}
			if index == target.Len() {
				target.Set(reflect.Append(target, reflect.Zero(known.kind.Elem())))
			}
			target = target.Index(index)
			known.kind = known.kind.Elem()
		}
	}
	return known, target, nil
}

// indexed is an element of a list as some languages name it.
var indexed = regexp.MustCompile(`\[([0-9]+)\]`)

// unknownOverride reports a dotted key that does not exist: key is the part of
// path that section does not have, rest what follows it.
func unknownOverride(path, section, key, rest string, fields []field) *Error {
	if problem := removedProblem(path); problem != "" {
		return &Error{File: overrideFile, Key: path, Problem: problem}
	}
	if dotted := indexed.ReplaceAllString(path, ".$1"); dotted != path {
		return &Error{File: overrideFile, Key: path, Problem: "is not how an element of a list is named", Nearest: dotted}
	}
	if now, renamed := NewKey(path); renamed {
		return &Error{File: overrideFile, Key: path, Problem: renamedProblem(now)}
	}
	err := &Error{File: overrideFile, Key: path, Problem: "unknown key", Allowed: strings.Join(keysOf(fields), ", "), Nearest: ownName[path]}
	if err.Nearest != "" {
		return err
	}
	near, within := meant(join(section, key), key, fields)
	switch err.Nearest = near; {
	case within:
		err.Nearest = strings.TrimSuffix(join(join(section, near), rest), ".")
	case near != "" && near == renamedNear(section, key):
		err.Nearest = strings.TrimSuffix(join(near, rest), ".")
	}
	return err
}
