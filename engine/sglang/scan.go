package sglang

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// depthMax is how deep values may be nested that a cursor goes past.
const depthMax = 32

// cursor goes over JSON text. Each method reports whether what it expects stands there; after a
// false one the text is left to encoding/json. What it accepts, encoding/json accepts too.
type cursor struct {
	text []byte
	at   int
}

// ahead skips white space and returns the byte that follows, 0 at the end.
func (c *cursor) ahead() byte {
	for ; c.at < len(c.text); c.at++ {
		switch b := c.text[c.at]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return 0
}

// skip goes past a byte.
func (c *cursor) skip(b byte) bool {
	if c.ahead() != b || b == 0 {
		return false
	}
	c.at++
	return true
}

// literal goes past a word such as null.
func (c *cursor) literal(word string) bool {
	c.ahead()
	if len(c.text)-c.at < len(word) || string(c.text[c.at:c.at+len(word)]) != word {
		return false
	}
	c.at += len(word)
	return true
}

// list goes over the entries of a list or an object, up to its closing byte; each goes past one.
func (c *cursor) list(opening, closing byte, each func() bool) bool {
	if !c.skip(opening) {
		return false
	}
	if c.skip(closing) {
		return true
	}
	for {
		if !each() {
			return false
		}
		if c.skip(closing) {
			return true
		}
		if !c.skip(',') {
			return false
		}
	}
}

// quoted goes past a string and returns what stands between its quotes. plain: there are no escapes in it.
func (c *cursor) quoted() (inside []byte, plain, ok bool) {
	if !c.skip('"') {
		return nil, false, false
	}
	start := c.at
	plain = true
	for ; c.at < len(c.text); c.at++ {
		switch b := c.text[c.at]; {
		case b == '"':
			inside = c.text[start:c.at]
			c.at++
			return inside, plain, true
		case b < ' ':
			return nil, false, false
		case b == '\\':
			plain = false
			if !c.escape() {
				return nil, false, false
			}
		}
	}
	return nil, false, false
}

// escape checks an escape and goes to its last byte.
func (c *cursor) escape() bool {
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

// key goes past an object's key and its colon.
func (c *cursor) key() ([]byte, bool) {
	name, plain, ok := c.quoted()
	return name, ok && plain && utf8.Valid(name) && c.skip(':')
}

// number goes past a number and returns its text.
func (c *cursor) number() ([]byte, bool) {
	c.ahead()
	start := c.at
	c.any("-")
	switch first := c.at; {
	case !c.digits():
		return nil, false
	case c.text[first] == '0' && c.at > first+1:
		return nil, false
	}
	if c.any(".") && !c.digits() {
		return nil, false
	}
	if c.any("eE") {
		c.any("+-")
		if !c.digits() {
			return nil, false
		}
	}
	return c.text[start:c.at], true
}

// any goes past one of some bytes.
func (c *cursor) any(of string) bool {
	for i := range len(of) {
		if c.at < len(c.text) && c.text[c.at] == of[i] {
			c.at++
			return true
		}
	}
	return false
}

// digits goes past at least one digit.
func (c *cursor) digits() bool {
	start := c.at
	for c.at < len(c.text) && c.text[c.at] >= '0' && c.text[c.at] <= '9' {
		c.at++
	}
	return c.at > start
}

// integer goes past a number without fraction and exponent.
func (c *cursor) integer() (int, bool) {
	text, ok := c.number()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	return int(n), err == nil
}

// value goes past any value.
func (c *cursor) value(depth int) bool {
	if depth > depthMax {
		return false
	}
	switch c.ahead() {
	case '"':
		_, _, ok := c.quoted()
		return ok
	case '{':
		return c.list('{', '}', func() bool {
			_, ok := c.key()
			return ok && c.value(depth+1)
		})
	case '[':
		return c.list('[', ']', func() bool { return c.value(depth + 1) })
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	}
	_, ok := c.number()
	return ok
}

// unquote appends a string's text, given what stands between its quotes.
func unquote(dst, inside []byte, plain bool) ([]byte, bool) {
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
