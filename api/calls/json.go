package calls

// object reads one JSON object byte by byte, and says at each byte whether what has come can still become
// one. Its zero value expects the opening brace.
type object struct {
	// open has a brace or bracket for everything that is not closed.
	open []byte
	at   place
	// rest is what is left of true, false or null, or how many digits of \uXXXX are to come.
	rest   string
	digits int
}

// place is what may come next.
type place byte

const (
	atBegin    place = iota // the object's brace
	atValue                 // a value
	atElement               // a value, or the end of a list that is empty
	atKey                   // a key
	atFirst                 // a key, or the end of an object that is empty
	inKey                   // the letters of a key
	inString                // the letters of a text
	inEscape                // what follows a backslash
	inUnicode               // the digits of \uXXXX
	atColon                 // what follows a key
	atNext                  // what follows a value
	inWord                  // the letters of true, false and null
	inMinus                 // the first digit of a number
	inZero                  // what follows a leading zero
	inDigits                // the digits before the point
	inPoint                 // the first digit behind the point
	inFraction              // the digits behind the point
	inE                     // the sign of the exponent, or its first digit
	inSign                  // the first digit of the exponent
	inExponent              // its digits
	atEnd                   // nothing: the object is complete
)

// key marks escapes within a key: they lead back to it.
const keyMark byte = 'k'

// next takes one byte and reports whether it may stand there.
func (o *object) next(b byte) bool {
	switch o.at {
	case inKey, inString:
		return o.letter(b)
	case inEscape, inUnicode:
		return o.escape(b)
	case inWord:
		if o.rest[0] != b {
			return false
		}
		if o.rest = o.rest[1:]; o.rest == "" {
			o.at = atNext
		}
		return true
	case inMinus, inZero, inDigits, inPoint, inFraction, inE, inSign, inExponent:
		if ok, more := o.number(b); !ok || more {
			return ok
		}
		o.at = atNext
	}
	if b == ' ' || b == '\n' || b == '\t' || b == '\r' {
		return o.at != atEnd
	}
	return o.token(b)
}

// token takes a byte between values.
func (o *object) token(b byte) bool {
	switch o.at {
	case atBegin:
		return b == '{' && o.push('{', atFirst)
	case atValue:
		return o.value(b)
	case atElement:
		return b == ']' && o.pop() || b != ']' && o.value(b)
	case atKey, atFirst:
		if b == '"' {
			o.at = inKey
			return true
		}
		return b == '}' && o.at == atFirst && o.pop()
	case atColon:
		o.at = atValue
		return b == ':'
	case atNext:
		return o.follow(b)
	}
	return false
}

func (o *object) follow(b byte) bool {
	in := o.open[len(o.open)-1]
	switch {
	case b == ',' && in == '{':
		o.at = atKey
	case b == ',':
		o.at = atValue
	case b == '}' && in == '{', b == ']' && in == '[':
		return o.pop()
	default:
		return false
	}
	return true
}

func (o *object) push(b byte, then place) bool {
	o.open, o.at = append(o.open, b), then
	return true
}

func (o *object) pop() bool {
	if o.open = o.open[:len(o.open)-1]; len(o.open) == 0 {
		o.at = atEnd
	} else {
		o.at = atNext
	}
	return true
}

func (o *object) value(b byte) bool {
	switch {
	case b == '{':
		return o.push('{', atFirst)
	case b == '[':
		return o.push('[', atElement)
	case b == '"':
		o.at = inString
	case b == 't':
		o.at, o.rest = inWord, "rue"
	case b == 'f':
		o.at, o.rest = inWord, "alse"
	case b == 'n':
		o.at, o.rest = inWord, "ull"
	case b == '-':
		o.at = inMinus
	case b == '0':
		o.at = inZero
	case b >= '1' && b <= '9':
		o.at = inDigits
	default:
		return false
	}
	return true
}

// letter takes a byte of a text.
func (o *object) letter(b byte) bool {
	switch {
	case b == '"' && o.at == inKey:
		o.at = atColon
	case b == '"':
		o.at = atNext
	case b == '\\':
		if o.at == inKey {
			o.open = append(o.open, keyMark)
		}
		o.at = inEscape
	default:
		return b >= ' '
	}
	return true
}

func (o *object) escape(b byte) bool {
	if o.at == inUnicode {
		if !(b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F') {
			return false
		}
		if o.digits--; o.digits > 0 {
			return true
		}
	} else {
		switch b {
		case 'u':
			o.at, o.digits = inUnicode, 4
			return true
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		default:
			return false
		}
	}
	o.at = inString
	if n := len(o.open) - 1; o.open[n] == keyMark {
		o.open, o.at = o.open[:n], inKey
	}
	return true
}

// number takes a byte that may belong to a number; more is false where the number has ended before it.
func (o *object) number(b byte) (ok, more bool) {
	digit := b >= '0' && b <= '9'
	switch {
	case digit && o.at == inMinus && b == '0':
		o.at = inZero
	case digit && o.at == inMinus:
		o.at = inDigits
	case digit && o.at == inPoint:
		o.at = inFraction
	case digit && (o.at == inE || o.at == inSign):
		o.at = inExponent
	case digit && o.at == inZero:
		return false, false
	case digit:
	case b == '.' && (o.at == inZero || o.at == inDigits):
		o.at = inPoint
	case (b == 'e' || b == 'E') && (o.at == inZero || o.at == inDigits || o.at == inFraction):
		o.at = inE
	case (b == '+' || b == '-') && o.at == inE:
		o.at = inSign
	case o.at == inMinus || o.at == inPoint || o.at == inE || o.at == inSign:
		return false, false
	default:
		return true, false
	}
	return true, true
}

// complete reports whether the closing brace has come.
func (o *object) complete() bool { return o.at == atEnd }

// text reports whether the next byte is a letter of a key or a text.
func (o *object) text() bool { return o.at >= inKey && o.at <= inUnicode }
