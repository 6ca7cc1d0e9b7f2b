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
	storetest.Run(t, func(t *testing.T) storetest.Place { return filePlace(t, false).Place })
}

func TestFileBlobs(t *testing.T) {
	for _, always := range []bool{false, true} {
		t.Run(fmt.Sprint(always), func(t *testing.T) {
			storetest.RunBlobs(t, func(t *testing.T) storetest.BlobPlace { return filePlace(t, always) })
		})
	}
}

func filePlace(t *testing.T, always bool) storetest.BlobPlace {
	dir := t.TempDir()
	return storetest.BlobPlace{
		Place: storetest.Place{
			Open: func(t *testing.T) port.Store {
				t.Helper()
				open := file.Open
				if _, err := os.Stat(filepath.Join(dir, trace.FileName)); errors.Is(err, fs.ErrNotExist) {
					open = file.Create
				}
				s, err := open(dir, file.Options{Always: always, PayloadBytesMax: storetest.PayloadBytesMax, SegmentBytes: 1 << 20})
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
		},
		DamageBlob: func(t *testing.T, _ port.Store, id port.RolloutID, number int32, at int64) {
			t.Helper()
			paths, err := filepath.Glob(filepath.Join(dir, "state", "blobs", fmt.Sprintf("%d-%d-%d-%d-*", id.Group, id.Sample, id.Attempt, number)))
			if err != nil || len(paths) != 1 {
				t.Fatalf("the files of a blob are %v: %v", paths, err)
			}
			text, err := os.ReadFile(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			text[at] ^= 1
			if err := os.WriteFile(paths[0], text, 0o644); err != nil {
				t.Fatal(err)
			}
		},
	}
}
