// Package config is the one schema behind every command. A document describes a
// run, a simulation or a prediction, and the same document serves all three.
//
// [Load] reads a YAML file strictly, applies overrides, fills in defaults and
// checks the result. It names every mistake by file, line and key, with the values
// that would be accepted. For a mistyped key it names the nearest known one.
// Several mistakes are reported together, as [Errors].
//
// A [Config] is a plain value. [Config.WithDefaults] returns a copy, and
// [Config.Validate] checks relations and changes nothing. [Config.YAML] prints a
// document that parses back to an equal Config; every trace starts with one.
//
// A preset ([Presets]) gives the keys of a framework's loop, verl's names are
// read into Headway's own, and [Config.Warnings] says what is allowed and
// doubtful. Of two values for one key the stronger counts: an override before
// the document before its preset.
//
// Field tags are the schema. The tag json names the key; min, max, above and below
// bound a number; allowed lists the values of a word. The tag later lists words
// that are known but not available yet, and omitempty marks a key that may stay
// unset. The comment on a field is its description in the JSON schema for editors,
// which a test regenerates.
package config
