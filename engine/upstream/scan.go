package upstream

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// scanDepthMax is how deep values may be nested that a Scanner goes past.
const scanDepthMax = 32

// Scanner goes over JSON text without reflection, in a twentieth of the time of encoding/json. Dialects
// read the events of tokens by it. Each method reports whether the text has the value that it expects.
// After a false one the caller leaves the text to encoding/json, which accepts all that a Scanner accepts.
type Scanner struct {
	text []byte
	at   int
}

// Scan begins at the start of a text.
func Scan(text []byte) Scanner { return Scanner{text: text} }

// End reports whether nothing follows.
func (c *Scanner) End() bool { return c.Ahead() == 0 && c.at == len(c.text) }

// Null goes past null, if it comes next.
func (c *Scanner) Null() bool { return c.Ahead() == 'n' && c.Literal("null") }

// Ahead skips white space and returns the byte that follows, 0 at the end.
func (c *Scanner) Ahead() byte {
	for ; c.at < len(c.text); c.at++ {
		if b := c.text[c.at]; b > ' ' || b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b
		}
	}
	return 0
}

// Skip goes past a byte.
func (c *Scanner) Skip(b byte) bool {
	if c.Ahead() != b || b == 0 {
		return false
	}
	c.at++
	return true
}

// Literal goes past a word such as null.
func (c *Scanner) Literal(word string) bool {
	c.Ahead()
	if len(c.text)-c.at < len(word) || string(c.text[c.at:c.at+len(word)]) != word {
		return false
	}
	c.at += len(word)
	return true
}

// List calls each for the entries of a list; each goes past one.
func (c *Scanner) List(each func() bool) bool { return c.entries('[', ']', each) }

// Object calls each with the keys of an object; each goes past the key's value. Keys in which encoding/json
// could see another by its folding of cases are not accepted.
func (c *Scanner) Object(each func(key []byte) bool) bool {
	return c.entries('{', '}', func() bool {
		key, ok := c.key()
		return ok && each(key)
	})
}

// key goes past a key and its colon.
func (c *Scanner) key() ([]byte, bool) {
	if !c.Skip('"') {
		return nil, false
	}
	for i, b := range c.text[c.at:] {
		if b == '"' {
			key := c.text[c.at : c.at+i]
			c.at += i + 1
			return key, c.Skip(':')
		}
		if b < ' ' || b >= utf8.RuneSelf || b == '\\' || b >= 'A' && b <= 'Z' {
			break
		}
	}
	return nil, false
}

func (c *Scanner) entries(opening, closing byte, each func() bool) bool {
	if !c.Skip(opening) {
		return false
	}
	if c.Skip(closing) {
		return true
	}
	for {
		if !each() {
			return false
		}
		if c.Skip(closing) {
			return true
		}
		if !c.Skip(',') {
			return false
		}
	}
}

// Quoted goes past a string and returns what stands between its quotes. plain: there are no escapes in it.
func (c *Scanner) Quoted() (inside []byte, plain, ok bool) {
	if !c.Skip('"') {
		return nil, false, false
	}
	start := c.at
	for i, b := range c.text[start:] {
		if b == '"' {
			c.at += i + 1
			return c.text[start : start+i], true, true
		}
		if b < ' ' || b == '\\' {
			c.at += i
			break
		}
	}
	for ; c.at < len(c.text); c.at++ { // there is an escape
		switch b := c.text[c.at]; {
		case b == '"':
			c.at++
			return c.text[start : c.at-1], false, true
		case b < ' ', b == '\\' && !c.escape():
			return nil, false, false
		}
	}
	return nil, false, false
}

// escape checks an escape and goes to its last byte.
func (c *Scanner) escape() bool {
	c.at++
	if c.at >= len(c.text) {
		return false
	}
	switch c.text[c.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		if c.at+4 >= len(c.text) {
			return false
		}
		for _, b := range c.text[c.at+1 : c.at+5] {
			if hex := b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'; !hex {
				return false
			}
		}
		c.at += 4
		return true
	}
	return false
}

// number goes past a number and returns its text.
func (c *Scanner) number() ([]byte, bool) {
	c.Ahead()
	start := c.at
	c.one('-')
	switch first := c.at; {
	case !c.digits():
		return nil, false
	case c.text[first] == '0' && c.at > first+1:
		return nil, false
	}
	if c.one('.') && !c.digits() {
		return nil, false
	}
	if c.one('e') || c.one('E') {
		if !c.one('-') {
			c.one('+')
		}
		if !c.digits() {
			return nil, false
		}
	}
	return c.text[start:c.at], true
}

// one goes past a byte, without white space.
func (c *Scanner) one(b byte) bool {
	if c.at < len(c.text) && c.text[c.at] == b {
		c.at++
		return true
	}
	return false
}

// digits goes past at least one digit.
func (c *Scanner) digits() bool {
	start := c.at
	for c.at < len(c.text) && c.text[c.at] >= '0' && c.text[c.at] <= '9' {
		c.at++
	}
	return c.at > start
}

// Float goes past a number, which is rounded to so many bits.
func (c *Scanner) Float(bits int) (float64, bool) {
	text, ok := c.number()
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(text), bits)
	return x, err == nil
}

// Integer goes past a number of 32 bits without fraction and exponent.
func (c *Scanner) Integer() (int32, bool) {
	text, ok := c.number()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	return int32(n), err == nil
}

// Value goes past any value.
func (c *Scanner) Value() bool { return c.value(0) }

func (c *Scanner) value(depth int) bool {
	if depth > scanDepthMax {
		return false
	}
	switch c.Ahead() {
	case '"':
		_, _, ok := c.Quoted()
		return ok
	case '{':
		return c.Object(func([]byte) bool { return c.value(depth + 1) })
	case '[':
		return c.List(func() bool { return c.value(depth + 1) })
	case 't':
		return c.Literal("true")
	case 'f':
		return c.Literal("false")
	case 'n':
		return c.Literal("null")
	}
	_, ok := c.number()
	return ok
}

// Unquote appends a string's text, given what stands between its quotes.
func Unquote(dst, inside []byte, plain bool) ([]byte, bool) {
	if plain && utf8.Valid(inside) {
		return append(dst, inside...), true
	}
	start := len(dst)
	for i := 0; i < len(inside); i++ {
		b := inside[i]
		if b != '\\' {
			dst = append(dst, b)
			continue
		}
		i++
		switch b = inside[i]; b {
		case 'b':
			b = '\b'
		case 'f':
			b = '\f'
		case 'n':
			b = '\n'
		case 'r':
			b = '\r'
		case 't':
			b = '\t'
		case 'u': // surrogates and all: left to who knows them
			var text string
			if json.Unmarshal(append(append([]byte{'"'}, inside...), '"'), &text) != nil {
				return dst[:start], false
			}
			return append(dst[:start], text...), true
		}
		dst = append(dst, b)
	}
	return dst, utf8.Valid(dst[start:])
}
