package printable

import (
	"os/exec"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		`no "room" for \n, ü, 猫`:    `no "room" for \n, ü, 猫`,
		"a\nb\tc\r":                 `a\nb` + "\tc" + `\r`,
		"\x1b[2J\x00\x7f":           `\x1b[2J\x00\x7f`,
		"\u009b1m \u202edoog\u2066": `\u009b1m \u202edoog\u2066`,
		"\xff\xfeab\ufffd":          `\xff\xfeab` + "\ufffd",
		strings.Repeat("a", 41):     strings.Repeat("a", 40) + "… (1 bytes more)",
		strings.Repeat("猫", 14):     strings.Repeat("猫", 13) + "… (3 bytes more)",
	} {
		if got := Text(text, 40); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	if got, want := Lines("a\x1b[2J\n\tb\u202e\r\n"), `a\x1b[2J`+"\n\t"+`b\u202e\r`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMessage(t *testing.T) {
	for text, want := range map[string]string{
		"engine a is lost: 5.0 s":                             "engine a is lost: 5.0 s",
		"it says \x1b[2J\u202e":                               `it says \x1b[2J\u202e`,
		"no\n2026-11-26 10:00:00  all is well\r\n\tat x.go:3": "no\n    2026-11-26 10:00:00  all is well\\r\n    \tat x.go:3",
	} {
		if got := Message(text); got != want {
			t.Errorf("%q is logged as %q, want %q", text, got, want)
		}
	}
}

// A printed command works as it stands.
func TestWord(t *testing.T) {
	for _, text := range []string{"runs/r-1", "", "two words", "it's", `x<b>y & "q"`, "$HOME", "é", "~", "a\\b"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Word(text)).Output()
		if err != nil || string(out) != text {
			t.Errorf("%q is read as %q, %v", text, out, err)
		}
	}
	if Word("runs/r-1") != "runs/r-1" {
		t.Error("a plain path is quoted")
	}
}
