package storetest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/storetest"
)

func TestFile(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Place {
		dir := t.TempDir()
		return storetest.Place{
			Open: func(t *testing.T) port.Store {
				t.Helper()
				open := file.Open
				if _, err := os.Stat(filepath.Join(dir, trace.FileName)); errors.Is(err, fs.ErrNotExist) {
					open = file.Create
				}
				s, err := open(dir, file.Options{PayloadBytesMax: storetest.PayloadBytesMax, SegmentBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Damage: func(t *testing.T, _ port.Store, line int64) {
				t.Helper()
				path := filepath.Join(dir, "state", fmt.Sprintf("snapshot-%016d", line))
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				text[len(text)-1] ^= 1
				if err := os.WriteFile(path, text, 0o644); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
