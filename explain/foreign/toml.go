package foreign

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
)

// tomlFile is a TOML config beside a log, as prime-rl leaves its own. Of it sections, and keys whose value is a number, a
// truth or a text on one line are read, which is what settings are.
type tomlFile struct{ path string }

func fitsTOML(file string, _ []byte) bool { return strings.ToLower(filepath.Ext(file)) == ".toml" }

func openTOML(file, _ string) Source { return tomlFile{file} }

func (s tomlFile) Path() string { return s.path }

func (s tomlFile) Read(ctx context.Context, taker Taker) error {
	section, array := "", false
	return Lines(ctx, s.path, taker, func(line []byte, _ int64, _ bool) error {
		text := string(bytes.TrimSpace(line))
		switch {
		case text == "" || text[0] == '#':
		case text[0] == '[':
			name := strings.Trim(withoutComment(text), "[] ")
			array = strings.HasPrefix(text, "[[") // one of several: which one a key is of cannot be said
			section = strings.ReplaceAll(name, `"`, "") + "."
		case !array:
			if key, value, is := strings.Cut(text, "="); is {
				s.setting(section+strings.Trim(strings.TrimSpace(key), `"`), strings.TrimSpace(value), taker)
			}
		}
		return nil
	})
}

// setting takes a key with a value of one line.
func (s tomlFile) setting(key, value string, taker Taker) {
	switch {
	case value == "", strings.ContainsAny(value[:1], "[{"):
		return
	case value[0] == '"' || value[0] == '\'':
		end := strings.IndexByte(value[1:], value[0])
		if end < 0 || strings.HasPrefix(value, `"""`) || strings.HasPrefix(value, `'''`) {
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
