package calls

import "bytes"

// stepParam takes a further argument, or the end of a call.
func (s *Scanner) stepParam(out *Out) bool {
	s.space()
	if len(s.in) == 0 {
		return false
	}
	opens, mayOpen := s.begins(s.d.params)
	ends, mayEnd := s.begins(s.d.ends)
	switch {
	case opens:
		s.keep(len(s.d.params))
		s.state = inKeyOf
	case ends:
		s.drop(len(s.d.ends))
		to := out.arguments(s.index)
		if s.first {
			*to = append(*to, '{')
		}
		*to = append(*to, '}')
		s.complete(out)
	case mayOpen || mayEnd:
		return false
	default:
		s.fail(Malformed, out)
	}
	return true
}

// stepKey reads up to the end of an argument's name.
func (s *Scanner) stepKey(out *Out) bool {
	at, which, _ := s.find(s.d.opens, s.d.sectionOpen, s.d.sectionClose, s.d.ends, s.d.keyEnds)
	switch {
	case at < 0 && len(s.in) > headMax:
		return s.brokenAt(len(s.in), Malformed, out)
	case at < 0:
		return false
	case which < 4:
		return s.brokenAt(at, Malformed, out)
	}
	s.key = string(bytes.TrimSpace(s.plain(s.in[:at])))
	s.keep(at + len(s.d.keyEnds))
	if s.key == "" {
		s.fail(Malformed, out)
		return true
	}
	s.value, s.typing, s.state = s.value[:0], bySchema, inValue
	if s.d.valueTags != nil {
		s.state = inValueTag
	}
	return true
}

// stepValueTag takes the tag that opens a value.
func (s *Scanner) stepValueTag(out *Out) bool {
	if s.d.trim {
		if s.space(); len(s.in) == 0 {
			return false
		}
	}
	which, maybe := s.beginsOne(s.d.valueTags)
	switch {
	case which >= 0:
		s.keep(len(s.d.valueTags[which]))
		s.typing, s.state = s.d.values[which].typing, inValue
	case maybe:
		return false
	default:
		s.fail(Malformed, out)
	}
	return true
}

// stepValue reads up to the end of a value. A frame of tokens cannot stand in it.
func (s *Scanner) stepValue(out *Out) bool {
	at, which, safe := s.find(asToken(s.d.opens), asToken(s.d.sectionOpen), asToken(s.d.sectionClose), asToken(s.d.ends), s.d.valueEnds)
	switch {
	case at < 0:
		s.value = append(s.value, s.in[:safe]...)
		s.keep(safe)
		return false
	case which < 4:
		return s.brokenAt(at, Malformed, out)
	}
	s.value = append(s.value, s.in[:at]...)
	s.keep(at + len(s.d.valueEnds))
	s.argument(out)
	s.state = inParam
	return true
}

// argument says an argument that is complete.
func (s *Scanner) argument(out *Out) {
	value := s.plain(s.value)
	switch {
	case s.d.trim:
		value = bytes.TrimSpace(value)
	case s.d.line:
		value = bytes.TrimSuffix(bytes.TrimPrefix(value, []byte("\n")), []byte("\n"))
	}
	to := out.arguments(s.index)
	if s.first {
		*to = append(*to, '{')
	} else {
		*to = append(*to, ", "...)
	}
	s.first = false
	*to = append(appendString(*to, []byte(s.key)), ": "...)
	*to = typed(*to, value, s.typing, s.tools[s.name].params[s.key])
}
