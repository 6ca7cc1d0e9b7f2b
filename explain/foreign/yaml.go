package foreign

import (
	"context"
	"strconv"
	"strings"
)

// yamlFile is a YAML config beside a log. Of it nested keys, and values that are a number, a truth or a text on one line
// are read, which is what settings are and how trackers write them; lists, anchors and texts of several lines are passed
// over. It is read line by line, so that its cost is its size: a YAML reader's grows with what aliases and nesting make of it.
type yamlFile struct {
	taker Taker
	file  string
	// open are the keys above the line, the outermost first.
	open []yamlKey
	// skip is the indent of a key whose text of several lines is passed over, -1 for none.
	skip int
	// top is the outermost key, which may hold dots.
	top string
	// between is what stands between a key and its value in braces.
	between string
}

// yamlKey is a key under which others may stand.
type yamlKey struct {
	indent int
	key    string // with those above
}

func (y *yamlFile) read(ctx context.Context) error {
	y.skip, y.between = -1, ":"
	return Lines(ctx, y.file, y.taker, func(line []byte, number int64, _ bool) error {
		if len(line) > ValueMax+KeyMax {
			y.taker.Warn(y.file, number, "a line of the config is longer than a setting may be; left out")
			return nil
		}
		y.line(string(line), number)
		return nil
	})
}

func (y *yamlFile) line(line string, number int64) {
	text := strings.TrimLeft(line, " ")
	indent := len(line) - len(text)
	text = strings.TrimRight(text, " \t")
	if text == "" || text[0] == '#' || indent == 0 && strings.HasPrefix(text, "---") {
		return
	}
	if y.skip >= 0 && indent > y.skip {
		return
	}
	y.skip = -1
	for len(y.open) > 0 && y.open[len(y.open)-1].indent >= indent {
		y.open = y.open[:len(y.open)-1]
	}
	key, value, is := yamlPair(text)
	if !is {
		return
	}
	if text[0] == '-' {
		y.skip = indent // what else is in a list's entry is as little a setting
		return
	}
	if len(y.open) > 0 {
		key = y.open[len(y.open)-1].key + "." + key
	} else {
		y.top = key
	}
	switch {
	case len(key) > KeyMax:
		y.taker.Warn(y.file, number, longKey)
		y.skip = indent
	case len(y.open) > depthMax:
		y.taker.Warn(y.file, number, "the config nests too deep; what is below is left out")
		y.skip = indent
	case value == "":
		y.open = append(y.open, yamlKey{indent, key})
	default:
		y.skip = indent // what is further in goes on with the value
		if value[0] != '{' {
			y.setting(key, value)
		} else if _, whole := y.flow(key, value, 0); !whole {
			y.taker.Warn(y.file, number, "a mapping in braces is not read to its end, as it is not on one line or no YAML")
		}
	}
}

// setting hands a value of one line on. W&B has each of its keys' values below it, as value.
func (y *yamlFile) setting(key, value string) {
	if strings.ContainsAny(value[:1], "[{&*!|>") || value == "null" || value == "~" {
		return
	}
	if value[0] == '"' {
		unquoted, err := strconv.Unquote(value)
		if err != nil {
			return
		}
		value = unquoted
	} else if value[0] == '\'' && len(value) > 1 && strings.HasSuffix(value, "'") {
		value = strings.ReplaceAll(value[1:len(value)-1], "''", "'")
	}
	if y.top == "_wandb" || y.top == "wandb_version" {
		return
	}
	below := strings.TrimPrefix(key, y.top)
	if below == ".value" {
		key = y.top
	} else if inner, is := strings.CutPrefix(below, ".value."); is {
		key = y.top + "." + inner
	}
	y.taker.Setting(key, value)
}

// yamlPair splits a line into its key and what follows, without a comment.
func yamlPair(text string) (key, value string, is bool) {
	end := strings.Index(text, ":")
	if quote := text[0]; quote == '"' || quote == '\'' {
		close := strings.IndexByte(text[1:], quote)
		if close < 0 || !strings.HasPrefix(text[close+2:], ":") {
			return "", "", false
		}
		end = close + 2
	}
	for end > 0 && end+1 < len(text) && text[end+1] != ' ' { // a colon within a key
		next := strings.Index(text[end+1:], ":")
		if next < 0 {
			return "", "", false
		}
		end += 1 + next
	}
	if end <= 0 {
		return "", "", false
	}
	key, value = strings.Trim(text[:end], `"' `), strings.TrimSpace(text[end+1:])
	if end := quotedEnd(value); end > 0 {
		if strings.HasPrefix(strings.TrimLeft(value[end:], " \t"), "#") {
			value = value[:end]
		}
	} else if value != "" {
		if value[0] == '#' {
			value = ""
		}
		value, _, _ = strings.Cut(value, " #")
		value = strings.TrimSpace(value)
	}
	return key, value, true
}

// quotedEnd is where the quoted text ends that a value begins with, 0 where there is none.
func quotedEnd(value string) int {
	if value == "" || value[0] != '"' && value[0] != '\'' {
		return 0
	}
	for i := 1; i < len(value); i++ {
		switch {
		case value[i] == '\\' && value[0] == '"':
			i++
		case value[i] != value[0]:
		case value[0] == '\'' && strings.HasPrefix(value[i+1:], "'"):
			i++ // two are one that is meant
		default:
			return i + 1
		}
	}
	return len(value)
}
