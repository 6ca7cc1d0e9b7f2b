package config

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
)

// field is one key of the schema, read from a struct field and its tags.
type field struct {
	key    string
	goName string
	index  int
	kind   reflect.Type
	unset  bool     // the key may stay unset: omitempty
	short  string   // the key that a plain value in the section's place stands for, "" for none
	words  []string // the values of a word, available now
	later  []string // values that are known but not available yet; "*" for all
	low    *bound
	high   *bound
	fields []field // of a section, or of one element of a list of sections
}

// bound is one end of a number's range.
type bound struct {
	value     float64
	exclusive bool
}

// document is the schema of a whole document.
var document = fieldsOf(reflect.TypeFor[Config]())

// fieldsOf reads the schema of a struct. A tag that does not parse is a bug in
// this package, so it panics.
func fieldsOf(section reflect.Type) []field {
	var fields []field
	for i := range section.NumField() {
		member := section.Field(i)
		if !member.IsExported() {
			continue
		}
		key, option, _ := strings.Cut(member.Tag.Get("json"), ",")
		known := field{
			key:    key,
			goName: member.Name,
			index:  i,
			kind:   member.Type,
			unset:  option == "omitempty",
			short:  member.Tag.Get("short"),
			words:  strings.Fields(member.Tag.Get("allowed")),
			later:  strings.Fields(member.Tag.Get("later")),
			low:    boundOf(member.Tag, "min", "above"),
			high:   boundOf(member.Tag, "max", "below"),
		}
		if element := known.scalar(); element.Kind() == reflect.Struct {
			known.fields = fieldsOf(element)
		}
		fields = append(fields, known)
	}
	return fields
}

// boundOf reads one end of a range from its inclusive or exclusive tag.
func boundOf(tag reflect.StructTag, inclusive, exclusive string) *bound {
	for name, isExclusive := range map[string]bool{inclusive: false, exclusive: true} {
		if text, ok := tag.Lookup(name); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				panic("config: tag " + name + ": " + err.Error())
			}
			return &bound{value, isExclusive}
		}
	}
	return nil
}

// find returns the field of a key.
func find(fields []field, key string) (field, bool) {
	for _, known := range fields {
		if known.key == key {
			return known, true
		}
	}
	return field{}, false
}

// keysOf lists the keys of a section.
func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, known := range fields {
		keys[i] = known.key
	}
	return keys
}

// meant guesses which key was meant by one that its section does not have, path in the
// document: the value of that very name in a section that is spelled nearly so, as
// trainer.steps by train.steps; else a key of the same section that is (within); else
// what has that name anywhere, in the section spelled most like it.
func meant(path, key string, fields []field) (near string, within bool) {
	if own := ownName[path]; own != "" {
		return own, false
	}
	section := strings.TrimSuffix(strings.TrimSuffix(path, key), ".")
	values, sections := pathsTo(key, "", document)
	for _, value := range values {
		if spelling.Nearest(section, []string{strings.TrimSuffix(value, "."+key)}) != "" {
			return value, false
		}
	}
	if near = spelling.Nearest(key, keysOf(fields)); near != "" {
		return near, true
	}
	if near = renamedNear(section, key); near != "" {
		return near, false
	}
	return alike(path, append(values, sections...)), false
}

// alike returns the path that is spelled most like another, "" of none.
func alike(path string, paths []string) string {
	best := ""
	for _, candidate := range paths {
		if best == "" || spelling.Distance(path, candidate) < spelling.Distance(path, best) {
			best = candidate
		}
	}
	return best
}

// pathsTo lists where in the document a key exists, as dotted paths: of values and of sections.
func pathsTo(key, prefix string, fields []field) (values, sections []string) {
	for _, known := range fields {
		path := join(prefix, known.key)
		switch {
		case known.key == key && known.fields == nil:
			values = append(values, path)
		case known.key == key:
			sections = append(sections, path)
		}
		v, s := pathsTo(key, path, known.fields)
		values, sections = append(values, v...), append(sections, s...)
	}
	return values, sections
}

// join appends a key to a dotted path.
func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

// rangeText says what a number may be.
func (f field) rangeText() string {
	noun := "a number"
	if isInteger(f.scalar()) {
		noun = "a whole number"
	}
	low, high := "", ""
	if f.low != nil {
		low = "at least " + number(f.low.value)
		if f.low.exclusive {
			low = "above " + number(f.low.value)
		}
	}
	if f.high != nil {
		high = "at most " + number(f.high.value)
		if f.high.exclusive {
			high = "below " + number(f.high.value)
		}
	}
	switch {
	case low != "" && high != "":
		return noun + " " + low + " and " + high
	default:
		return strings.TrimSpace(noun + " " + low + high)
	}
}

// inRange reports whether a number is within the field's bounds.
func (f field) inRange(value float64) bool {
	below := f.low != nil && (value < f.low.value || f.low.exclusive && value == f.low.value)
	return !below && !(f.high != nil && (value > f.high.value || f.high.exclusive && value == f.high.value))
}

// scalar is the type of the field's value, or of what its lists hold in the end.
func (f field) scalar() reflect.Type {
	kind := f.kind
	for kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	return kind
}

func isInteger(kind reflect.Type) bool {
	return kind.Kind() == reflect.Int || kind.Kind() == reflect.Uint64
}

// number prints a number the way a person writes it.
func number(value float64) string {
	if value == float64(int64(value)) {
		return strconv.FormatInt(int64(value), 10)
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}
