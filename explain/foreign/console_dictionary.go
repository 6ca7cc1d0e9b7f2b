package foreign

import (
	"strconv"
	"strings"
)

// readDictionary reads the numbers of a dictionary as Python or JSON writes it, at the beginning of a text, nested keys
// joined by dots. It reports whether there is one with a number in it; a torn one counts for what it has.
func readDictionary(text string, values map[string]float64) bool {
	d := dictionary{rest: text, values: values}
	d.object("", 0)
	return len(values) > 0
}

type dictionary struct {
	rest   string
	values map[string]float64
}

func (d *dictionary) space() { d.rest = strings.TrimLeft(d.rest, " \t\n") }

func (d *dictionary) take(c byte) bool {
	d.space()
	if d.rest == "" || d.rest[0] != c {
		return false
	}
	d.rest = d.rest[1:]
	return true
}

// object reads {key: value, …}; false where it is malformed from there on.
func (d *dictionary) object(prefix string, depth int) bool {
	if depth > depthMax || !d.take('{') {
		return false
	}
	for !d.take('}') {
		d.space()
		key, ok := d.quoted()
		if !ok || len(prefix)+len(key) > KeyMax || !d.take(':') || !d.value(prefix+key, depth) {
			return false
		}
		if !d.take(',') {
			return d.take('}')
		}
	}
	return true
}

func (d *dictionary) value(key string, depth int) bool {
	d.space()
	switch {
	case d.rest == "":
		return false
	case d.rest[0] == '{':
		return d.object(key+".", depth+1)
	case d.rest[0] == '\'' || d.rest[0] == '"':
		text, ok := d.quoted()
		if ok {
			d.number(key, text)
		}
		return ok
	}
	word, _ := pythonCut(d.rest)
	d.rest = d.rest[len(word):] // what follows is a comma or a bracket, or nothing where it is torn
	whole := d.rest != ""
	if whole {
		d.number(key, word)
	}
	return whole
}

func (d *dictionary) number(key, text string) {
	text = unwrapped(text)
	value, ok := number(text)
	if !ok {
		var err error
		if value, err = strconv.ParseFloat(text, 64); err != nil { // NaN and infinities count as what they are
			return
		}
	}
	if len(d.values) < pendingMax {
		d.values[key] = value
	}
}

// quoted reads a text in single or double quotes.
func (d *dictionary) quoted() (string, bool) {
	if d.rest == "" || d.rest[0] != '\'' && d.rest[0] != '"' {
		return "", false
	}
	quote := d.rest[0]
	var out strings.Builder
	for i := 1; i < len(d.rest); i++ {
		switch c := d.rest[i]; c {
		case quote:
			d.rest = d.rest[i+1:]
			return out.String(), true
		case '\\':
			i++
			if i < len(d.rest) {
				out.WriteByte(plain(d.rest[i]))
			}
		default:
			out.WriteByte(c)
		}
	}
	return "", false
}
