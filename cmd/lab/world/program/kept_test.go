package program

import (
	"strings"
	"testing"
)

// Folder is the folder of the worlds.
func (p *Program) Folder() string { return p.folder }

func TestKept(t *testing.T) {
	var k kept
	for _, part := range []string{"begin", strings.Repeat("x", keptMax), strings.Repeat("y", keptMax), "end"} {
		if n, err := k.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	text := k.String()
	if !strings.HasPrefix(text, "beginx") || !strings.HasSuffix(text, "yend") || !strings.Contains(text, "… 8 bytes are left out …") || len(text) > 2*keptMax+100 {
		t.Errorf("%d bytes: %.20q … %q", len(text), text, text[len(text)-20:])
	}
	k = kept{}
	_, _ = k.Write([]byte("all"))
	if k.String() != "all" {
		t.Errorf("%q", k.String())
	}
}
