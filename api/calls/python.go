package calls

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// digitsMax is how many digits a whole number may have: the time to read more grows faster than they.
const digitsMax = 1000

// nestedMax bounds how deep the values of a call written in Python's words may lie in each other.
const nestedMax = 64

// pythonReader reads a list of calls in Python's words, whose arguments are named and literal.
type pythonReader struct {
	text  string
	depth int
}

// pythonCalls reads [name(key=value, …), …]. Where that is none, found tells an attempt from an answer: it
// is not empty once a name and its parenthesis have come.
func pythonCalls(text string) (found []wholeCall, status Status) {
	p := &pythonReader{text: text}
	if !p.take('[') {
		return nil, Malformed
	}
	for {
		name := p.name()
		if name == "" || !p.take('(') {
			return found, Malformed
		}
		found = append(found, wholeCall{name: name})
		arguments, ok := p.arguments()
		switch {
		case !ok && p.text == "":
			return found, Unclosed
		case !ok:
			return found, Malformed
		}
		found[len(found)-1].arguments = arguments
		if p.take(']') {
			break
		}
		if !p.take(',') {
			if p.text == "" {
				return found, Unclosed
			}
			return found, Malformed
		}
		if p.take(']') {
			break
		}
	}
	if p.space(); p.text != "" {
		return found, Malformed
	}
	return found, OK
}

func (p *pythonReader) space() { p.text = strings.TrimLeft(p.text, " \t\r\n") }

// take takes a sign, and the spaces before it.
func (p *pythonReader) take(sign byte) bool {
	p.space()
	if p.text == "" || p.text[0] != sign {
		return false
	}
	p.text = p.text[1:]
	return true
}

// name takes a name, which may have points in it.
func (p *pythonReader) name() string {
	p.space()
	n := strings.IndexFunc(p.text, func(r rune) bool {
		return !(r == '_' || r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	})
	if n < 0 {
		n = len(p.text)
	}
	name := p.text[:n]
	if name == "" || strings.ContainsAny(name[:1], "0123456789.-") {
		return ""
	}
	p.text = p.text[n:]
	return name
}

// arguments reads named arguments up to the closing parenthesis, as a JSON object.
func (p *pythonReader) arguments() ([]byte, bool) {
	line := []byte{'{'}
	for first := true; !p.take(')'); first = false {
		if !first {
			if !p.take(',') {
				return nil, false
			}
			if p.take(')') {
				break
			}
			line = append(line, ", "...)
		}
		key := p.name()
		if key == "" || !p.take('=') {
			return nil, false
		}
		line = append(appendString(line, []byte(key)), ": "...)
		var ok bool
		if line, ok = p.value(line); !ok {
			return nil, false
		}
	}
	return append(line, '}'), true
}

// value reads a literal and adds it as JSON.
func (p *pythonReader) value(line []byte) ([]byte, bool) {
	p.space()
	if p.text == "" || p.depth >= nestedMax {
		return nil, false
	}
	p.depth++
	defer func() { p.depth-- }()
	switch c := p.text[0]; c {
	case '"', '\'':
		return p.quoted(line)
	case '[':
		return p.row(line, ']')
	case '(':
		return p.row(line, ')')
	case '{':
		return p.mapping(line)
	}
	for _, word := range [][2]string{{"True", "true"}, {"False", "false"}, {"None", "null"}, {"true", "true"}, {"false", "false"}, {"null", "null"}} {
		if rest, ok := strings.CutPrefix(p.text, word[0]); ok {
			p.text = rest
			return append(line, word[1]...), true
		}
	}
	return p.number(line)
}

func (p *pythonReader) number(line []byte) ([]byte, bool) {
	n := strings.IndexFunc(p.text, func(r rune) bool { return !strings.ContainsRune("+-.0123456789eE_", r) })
	if n < 0 {
		n = len(p.text)
	}
	text := p.text[:n]
	p.text = p.text[n:]
	if len(text) <= digitsMax {
		if whole, ok := new(big.Int).SetString(text, 10); ok {
			return whole.Append(line, 10), true
		}
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Contains(text, "_") || number-number != 0 {
		return nil, false
	}
	if text := strconv.FormatFloat(number, 'g', -1, 64); strings.ContainsAny(text, ".e") {
		return append(line, text...), true
	}
	return strconv.AppendFloat(line, number, 'f', 1, 64), true
}

// row reads a list or a tuple.
func (p *pythonReader) row(line []byte, closes byte) ([]byte, bool) {
	p.text = p.text[1:]
	line = append(line, '[')
	for first := true; !p.take(closes); first = false {
		if !first {
			if !p.take(',') {
				return nil, false
			}
			if p.take(closes) {
				break
			}
			line = append(line, ", "...)
		}
		var ok bool
		if line, ok = p.value(line); !ok {
			return nil, false
		}
	}
	return append(line, ']'), true
}

// mapping reads a dictionary, whose keys are texts.
func (p *pythonReader) mapping(line []byte) ([]byte, bool) {
	p.text = p.text[1:]
	line = append(line, '{')
	for first := true; !p.take('}'); first = false {
		if !first {
			if !p.take(',') {
				return nil, false
			}
			if p.take('}') {
				break
			}
			line = append(line, ", "...)
		}
		if p.space(); p.text == "" || p.text[0] != '"' && p.text[0] != '\'' {
			return nil, false
		}
		var ok bool
		if line, ok = p.quoted(line); !ok || !p.take(':') {
			return nil, false
		}
		if line, ok = p.value(append(line, ": "...)); !ok {
			return nil, false
		}
	}
	return append(line, '}'), true
}

// pythonEscapes are the letters that follow a backslash and stand for one other.
var pythonEscapes = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '\'': '\'', '"': '"', 'a': 7, 'b': 8, 'f': 12, 'v': 11, '0': 0}

// quoted reads a text between one or three marks.
func (p *pythonReader) quoted(line []byte) ([]byte, bool) {
	mark := p.text[:1]
	if triple := strings.Repeat(mark, 3); strings.HasPrefix(p.text, triple) {
		mark = triple
	}
	p.text = p.text[len(mark):]
	var text []byte
	for p.text != "" {
		if rest, ok := strings.CutPrefix(p.text, mark); ok {
			p.text = rest
			return appendString(line, text), true
		}
		c := p.text[0]
		p.text = p.text[1:]
		switch {
		case c == '\n' && len(mark) == 1:
			return nil, false
		case c != '\\':
			text = append(text, c)
		default:
			var ok bool
			if text, ok = p.escape(text); !ok {
				return nil, false
			}
		}
	}
	return nil, false
}

func (p *pythonReader) escape(text []byte) ([]byte, bool) {
	if p.text == "" {
		return nil, false
	}
	c := p.text[0]
	p.text = p.text[1:]
	if to, ok := pythonEscapes[c]; ok {
		return append(text, to), true
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	switch {
	case c == '\n':
		return text, true
	case digits == 0:
		return append(text, '\\', c), true
	case len(p.text) < digits:
		p.text = ""
		return nil, false
	}
	code, err := strconv.ParseUint(p.text[:digits], 16, 32)
	if p.text = p.text[digits:]; err != nil {
		return nil, false
	}
	return utf8.AppendRune(text, rune(code)), true
}
