package file_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/file"
)

// FuzzOpen: a run's files may hold anything after a disk failed. The run opens, and every payload that it then gives is
// whole, or it is refused.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	s, enc := begin(f, dir, file.Options{})
	appendLines(f, s, eventLine(enc, 1), enc.AppendAction(nil, enc.Seq(), loop.Action{Kind: loop.GroupQueued, Group: 1}))
	for sample := range int32(2) {
		if err := s.PutSample(sampleOf(1, sample, 1)); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Snapshot(2, []byte("state")); err != nil {
		f.Fatal(err)
	}
	closeStore(f, s)
	files := map[string][]byte{}
	for _, pattern := range []string{trace.FileName, "state/*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil {
				name, err := filepath.Rel(dir, path)
				if err != nil {
					f.Fatal(err)
				}
				files[name] = text
			}
		}
	}
	var names []string
	for name := range files {
		names = append(names, name)
		f.Add(uint(len(names)), uint(9), []byte{0xff, 0xff, 0xff, 0x7f}, false)
		f.Add(uint(len(names)), uint(3), []byte{}, true)
	}
	f.Fuzz(func(t *testing.T, which, at uint, there []byte, cut bool) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "state"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if name == names[which%uint(len(names))] && len(text) > 0 {
				text = bytes.Clone(text)
				copy(text[at%uint(len(text)):], there)
				if cut {
					text = text[:at%uint(len(text))]
				}
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := file.Open(dir, file.Options{})
		if err != nil {
			return
		}
		_, _, _ = s.ReadSnapshot(1 << 40)
		if samples, err := s.Samples(1); err == nil {
			for _, sample := range samples {
				if len(sample.Tokens) != len(sample.Versions) {
					t.Errorf("%+v", sample)
				}
			}
		}
		_ = s.Close()
	})
}
