package foreign

import "strings"

// flow reads a mapping of one line, {a: 1, b: {c: 2}} or TOML's {a = 1}, at the beginning of a text, and returns what follows it. It is false
// where the text is none from there on.
func (y *yamlFile) flow(key, text string, depth int) (rest string, ok bool) {
	if depth > depthMax {
		return "", false
	}
	text = strings.TrimLeft(text[1:], " ")
	for {
		if strings.HasPrefix(text, "}") {
			return text[1:], true
		}
		name, after, is := strings.Cut(text, y.between)
		if !is || strings.ContainsAny(name, "{}[],") || len(key)+1+len(name) > KeyMax {
			return "", false
		}
		whole := key + "." + strings.Trim(name, `"' `)
		text, ok = y.flowValue(whole, strings.TrimLeft(after, " "), depth)
		if !ok {
			return "", false
		}
		text = strings.TrimLeft(text, " ")
		if strings.HasPrefix(text, ",") {
			text = strings.TrimLeft(text[1:], " ")
		} else if !strings.HasPrefix(text, "}") {
			return "", false
		}
	}
}

// flowValue reads one value of such a mapping.
func (y *yamlFile) flowValue(key, text string, depth int) (rest string, ok bool) {
	if text == "" {
		return "", false
	}
	switch text[0] {
	case '{':
		return y.flow(key, text, depth+1)
	case '[':
		return afterList(text)
	case '"', '\'':
		end := strings.IndexByte(text[1:], text[0])
		if end < 0 {
			return "", false
		}
		y.setting(key, text[:end+2])
		return text[end+2:], true
	}
	end := strings.IndexAny(text, ",}")
	if end < 0 {
		return "", false
	}
	if value := strings.TrimSpace(text[:end]); value != "" {
		y.setting(key, value)
	}
	return text[end:], true
}

// afterList is what follows the list that a text begins with.
func afterList(text string) (rest string, ok bool) {
	open := 0
	for i := range len(text) {
		switch text[i] {
		case '[':
			open++
		case ']':
			open--
			if open == 0 {
				return text[i+1:], true
			}
		}
	}
	return "", false
}
