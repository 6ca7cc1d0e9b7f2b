package pool

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzJournal: the file of open boxes may be anything after a crash. What is read names boxes, and whole lines alone count.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"box":"a.1"}` + "\n" + `{"box":"a.1","holder":"h"}` + "\n" + `{"box":"a.2"}` + "\n" + `{"box":"a.2","gone":true}` + "\n" + `{"box":"a.3"`))
	f.Add([]byte("\n\n{}\nnull\n[]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "boxes")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		open, err := readJournal(path, func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		for id := range open {
			if id == "" {
				t.Error("a box without a name")
			}
		}
		if len(open) > len(text)/8 {
			t.Errorf("%d boxes in %d bytes", len(open), len(text))
		}
	})
}
