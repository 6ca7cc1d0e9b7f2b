package taskset

import (
	"bytes"
	"encoding/json"
	"strings"
)

// members calls each with the name and the value of every member of a JSON object, which is
// known to be valid, until each returns false. Nothing is copied: value is part of object.
func members(object []byte, each func(name []byte, value json.RawMessage) bool) {
	i := blank(object, 0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	for i = blank(object, i+1); i < len(object) && object[i] == '"'; i = blank(object, i+1) {
		end := skip(object, i)
		name := object[i:end]
		begin := blank(object, blank(object, end)+1) // after the colon
		end = skip(object, begin)
		if !each(unquote(name), object[begin:end:end]) {
			return
		}
		if i = blank(object, end); i >= len(object) || object[i] != ',' {
			return
		}
	}
}

// blank returns the first place from i that is no white space.
func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns the place after the value that begins at i.
func skip(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue
		default:
			for i < len(b) && !strings.ContainsRune(",:]} \t\n\r", rune(b[i])) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return i
}

// unquote returns a valid JSON string's text.
func unquote(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var text string
	json.Unmarshal(quoted, &text) // it was found to be valid
	return []byte(text)
}

// member returns a field of an object by its path, nil where it is not there or null. A name that
// has dots itself is found as it stands.
func member(object json.RawMessage, path []string) json.RawMessage {
	var got json.RawMessage
	whole := path[0]
	if len(path) > 1 {
		whole = strings.Join(path, ".")
	}
	members(object, func(name []byte, value json.RawMessage) bool {
		switch {
		case string(name) == whole:
			got = value
			return false
		case len(path) > 1 && string(name) == path[0]:
			got = member(value, path[1:])
		}
		return true
	})
	if string(got) == "null" {
		return nil
	}
	return got
}

// kind names a JSON value's type for people.
func kind(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "text"
	case '{':
		return "object"
	case '[':
		return "list"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// aKind is kind with its article.
func aKind(value json.RawMessage) string {
	if value[0] == '{' {
		return "an object"
	}
	return "a " + kind(value)
}
