package foreign

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// flat reads one JSON value as numbers by key, nested keys joined by dots. Python's NaN and Infinity,
// which JSON does not have, are read as what they are. Texts go to text, arrays are passed over, and so is what
// stands under a key longer than KeyMax: long tells of it once. Keys are valid until the function returns.
type flat struct {
	rest   []byte
	number func(key []byte, value float64)
	text   func(key, value []byte)
	long   func()
	path   []byte // the nested key that is read
}

// depthMax is how deep values may nest.
const depthMax = 200

var errJSON = errors.New("this is not JSON")

// read reads the one value that rest is.
func (f *flat) read() error {
	if err := f.value(nil, 0); err != nil {
		return err
	}
	f.space()
	if len(f.rest) > 0 {
		return fmt.Errorf("%w: more follows the value", errJSON)
	}
	return nil
}

func (f *flat) space() {
	for len(f.rest) > 0 && (f.rest[0] == ' ' || f.rest[0] == '\t' || f.rest[0] == '\r' || f.rest[0] == '\n') {
		f.rest = f.rest[1:]
	}
}

func (f *flat) value(key []byte, depth int) error {
	if depth > depthMax {
		return fmt.Errorf("%w: it nests deeper than %d", errJSON, depthMax)
	}
	f.space()
	if len(f.rest) == 0 {
		return fmt.Errorf("%w: it ends early", errJSON)
	}
	switch f.rest[0] {
	case '{':
		return f.object(key, depth)
	case '[':
		return f.array(depth)
	case '"':
		value, err := f.string()
		if err == nil && f.text != nil && key != nil {
			f.text(key, value)
		}
		return err
	default:
		return f.word(key)
	}
}

func (f *flat) object(key []byte, depth int) error {
	f.rest = f.rest[1:]
	f.space()
	if f.take('}') {
		return nil
	}
	for {
		f.space()
		name, err := f.string()
		if err != nil {
			return err
		}
		f.space()
		if !f.take(':') {
			return fmt.Errorf("%w: a colon was expected", errJSON)
		}
		if err := f.member(key, name, depth+1); err != nil {
			return err
		}
		f.space()
		if f.take('}') {
			return nil
		}
		if !f.take(',') {
			return fmt.Errorf("%w: a comma was expected", errJSON)
		}
	}
}

// member reads what stands under a name below a key.
func (f *flat) member(key, name []byte, depth int) error {
	if len(key)+1+len(name) > KeyMax {
		return f.longMember(depth)
	}
	if len(key) > 0 {
		f.path = append(append(append(f.path[:0], key...), '.'), name...) // key is often its beginning already
		name = f.path
	}
	return f.value(name, depth)
}

// longMember passes over what stands under a key that is too long.
func (f *flat) longMember(depth int) error {
	if f.long != nil {
		f.long()
	}
	defer f.deaf()()
	return f.value(nil, depth)
}

// deaf has nothing told until what it returns is called.
func (f *flat) deaf() (again func()) {
	number, text, long := f.number, f.text, f.long
	f.number, f.text, f.long = nil, nil, nil
	return func() { f.number, f.text, f.long = number, text, long }
}

// array passes over an array.
func (f *flat) array(depth int) error {
	defer f.deaf()()
	f.rest = f.rest[1:]
	f.space()
	if f.take(']') {
		return nil
	}
	for {
		if err := f.value(nil, depth+1); err != nil {
			return err
		}
		f.space()
		if f.take(']') {
			return nil
		}
		if !f.take(',') {
			return fmt.Errorf("%w: a comma was expected", errJSON)
		}
	}
}

func (f *flat) take(c byte) bool {
	if len(f.rest) == 0 || f.rest[0] != c {
		return false
	}
	f.rest = f.rest[1:]
	return true
}

// string reads a text. What is no UTF-8 is kept as it is: keys are only compared.
func (f *flat) string() ([]byte, error) {
	if !f.take('"') {
		return nil, fmt.Errorf("%w: a quoted text was expected", errJSON)
	}
	for i := 0; i < len(f.rest); i++ {
		switch f.rest[i] {
		case '"':
			text := f.rest[:i]
			f.rest = f.rest[i+1:]
			return text, nil
		case '\\':
			return f.escaped(i)
		}
	}
	return nil, fmt.Errorf("%w: it ends within a text", errJSON)
}

// escaped reads a text of which the first escape stands at i.
func (f *flat) escaped(i int) ([]byte, error) {
	text := append([]byte(nil), f.rest[:i]...)
	for i < len(f.rest) {
		c := f.rest[i]
		i++
		switch {
		case c == '"':
			f.rest = f.rest[i:]
			return text, nil
		case c != '\\':
			text = append(text, c)
		case i < len(f.rest):
			c = f.rest[i]
			i++
			if c != 'u' {
				text = append(text, plain(c))
				continue
			}
			if i+4 > len(f.rest) {
				return nil, fmt.Errorf("%w: it ends within a text", errJSON)
			}
			code, err := strconv.ParseUint(string(f.rest[i:i+4]), 16, 32)
			if err != nil {
				return nil, fmt.Errorf("%w: \\u needs four hexadecimal digits", errJSON)
			}
			text = utf8.AppendRune(text, rune(code))
			i += 4
		}
	}
	return nil, fmt.Errorf("%w: it ends within a text", errJSON)
}

func plain(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	}
	return c
}

// word reads a number, true, false, null, NaN or Infinity.
func (f *flat) word(key []byte) error {
	end := 0
	for end < len(f.rest) && !endsWord(f.rest[end]) {
		end++
	}
	word := f.rest[:end]
	f.rest = f.rest[end:]
	value, known := 0.0, false
	if len(word) == 0 || word[0] > '9' || len(word) > 3 && word[1] > '9' {
		value, known = constants[string(word)]
	}
	if !known {
		if len(word) == 0 || !(word[0] == '-' || word[0] >= '0' && word[0] <= '9') {
			return fmt.Errorf("%w: a value was expected", errJSON)
		}
		var err error
		value, err = strconv.ParseFloat(string(word), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%w: a number was expected", errJSON)
		}
	}
	if f.number != nil && key != nil && string(word) != "null" {
		f.number(key, value)
	}
	return nil
}

// endsWord reports whether a number or a word ends before a letter.
func endsWord(c byte) bool {
	switch c {
	case ',', ']', '}', ':', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// constants are the words that are values; null is none and is passed over.
var constants = map[string]float64{
	"true": 1, "false": 0, "null": 0, "NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1), "-NaN": math.NaN(),
}
