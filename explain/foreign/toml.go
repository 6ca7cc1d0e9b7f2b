package foreign

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
)

// tomlFile is a TOML config beside a log, as prime-rl leaves its own. Of it sections, and keys whose value is a number, a
// truth, a text or a table on one line are read, which is what settings are.
type tomlFile struct{ path string }

func fitsTOML(file string, _ []byte) bool { return strings.ToLower(filepath.Ext(file)) == ".toml" }

func openTOML(file, _ string) Source { return tomlFile{file} }

func (s tomlFile) Path() string { return s.path }

func (s tomlFile) Read(ctx context.Context, taker Taker) error {
	section, array, closing := "", false, ""
	return Lines(ctx, s.path, taker, func(line []byte, number int64, _ bool) error {
		text := string(bytes.TrimSpace(line))
		switch {
		case closing != "": // of a text of several lines
			if strings.Contains(text, closing) {
				closing = ""
			}
		case text == "" || text[0] == '#':
		case text[0] == '[':
			name := strings.Trim(withoutComment(text), "[] ")
			array = strings.HasPrefix(text, "[[") // one of several: which one a key is of cannot be said
			section = strings.ReplaceAll(name, `"`, "") + "."
		default:
			key, value, is := strings.Cut(text, "=")
			value = strings.TrimSpace(value)
			closing = opened(value)
			if is && !array && closing == "" {
				s.setting(section+strings.Trim(strings.TrimSpace(key), `"`), value, number, taker)
			}
		}
		return nil
	})
}

// opened is what closes the text that a value begins, empty where it is closed on its line.
func opened(value string) (closing string) {
	for _, quotes := range []string{`"""`, "'''"} {
		if inside, is := strings.CutPrefix(value, quotes); is && !strings.Contains(inside, quotes) {
			return quotes
		}
	}
	return ""
}

// setting takes a key with a value of one line.
func (s tomlFile) setting(key, value string, number int64, taker Taker) {
	switch {
	case value == "", value[0] == '[', strings.HasPrefix(value, `"""`), strings.HasPrefix(value, "'''"):
		return
	case value[0] == '{':
		if _, whole := (&yamlFile{taker: taker, file: s.path, between: "="}).flow(key, value, 0); !whole {
			taker.Warn(s.path, number, "a table in braces is not read to its end, as it is not on one line or no TOML")
		}
		return
	case value[0] == '"' || value[0] == '\'':
		end := strings.IndexByte(value[1:], value[0])
		if end < 0 {
			return
		}
		value = value[1 : end+1]
	default:
		value = withoutComment(value)
	}
	taker.Setting(key, value)
}

func withoutComment(text string) string {
	text, _, _ = strings.Cut(text, "#")
	return strings.TrimSpace(text)
}
