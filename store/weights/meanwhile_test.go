package weights

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// interrupted is a disk on which something else happens before the given operation.
type interrupted struct {
	system
	// left counts down to the operation; meanwhile is called there, once.
	left      int
	meanwhile func()
}

func (d *interrupted) tick() {
	if d.left--; d.left == -1 {
		d.meanwhile()
	}
}

func (d *interrupted) Mkdir(dir string) error             { d.tick(); return d.system.Mkdir(dir) }
func (d *interrupted) Create(path string) (output, error) { d.tick(); return d.system.Create(path) }
func (d *interrupted) Open(path string) (input, error)    { d.tick(); return d.system.Open(path) }
func (d *interrupted) Rename(from, to string) error       { d.tick(); return d.system.Rename(from, to) }
func (d *interrupted) RemoveAll(path string) error        { d.tick(); return d.system.RemoveAll(path) }
func (d *interrupted) Names(dir string) ([]string, error) { d.tick(); return d.system.Names(dir) }
func (d *interrupted) SyncDir(dir string) error           { d.tick(); return d.system.SyncDir(dir) }
func (d *interrupted) Link(from, to string) error         { d.tick(); return d.system.Link(from, to) }

// A version that is pruned at whatever operation of somebody who makes something in it is not found, or
// was whole before; it is never called damaged, and nothing of it is left.
func TestPrunedMeanwhile(t *testing.T) {
	for name, work := range map[string]func(context.Context, *Store) error{
		"view": func(ctx context.Context, s *Store) error { _, err := s.View(ctx, 1); return err },
		"view again": func(ctx context.Context, s *Store) error {
			_, err := s.View(ctx, 1)
			if err == nil {
				_, err = s.View(ctx, 1)
			}
			return err
		},
		"delta": func(ctx context.Context, s *Store) error { _, err := s.Diff(ctx, 0, 1, XOR); return err },
		"cast":  func(ctx context.Context, s *Store) error { _, err := s.Cast(ctx, 1, Cast{DType: BF16}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			for operation := 0; ; operation++ {
				dir := t.TempDir()
				s := openTest(t, dir, Options{Always: true})
				if err := s.PublishCheckpoint(t.Context(), smallCheckpoint(t)); err != nil {
					t.Fatal(err)
				}
				for _, p := range []Description{{Version: 1, Lease: 1, Kind: KindFull}, {Version: 2, Lease: 2, Kind: KindFull}} {
					if _, err := publishFiles(t, s, p, add{ModelName, smallModel(t, float32(p.Version), 1)}); err != nil {
						t.Fatal(err)
					}
				}
				d := &interrupted{left: operation, meanwhile: func() {
					if err := openTest(t, dir, Options{ReadOnly: true}).remove(1); err != nil {
						t.Error(err)
					}
				}}
				s.disk = d
				err := work(t.Context(), s)
				if err != nil && !errors.Is(err, ErrNotFound) {
					t.Errorf("pruned before operation %d: %v", operation, err)
				}
				if d.left >= 0 {
					if err != nil || operation < 4 {
						t.Errorf("undisturbed, after %d operations: %v", operation, err)
					}
					return
				}
				onlyVersions(t, dir, BesideName, "v000000", "v000002")
			}
		})
	}
}

// occupied is a disk on which somebody's rename lands in a directory while it is being emptied.
type occupied struct {
	system
	times int
}

func (d *occupied) RemoveAll(path string) error {
	if d.times--; d.times >= 0 {
		return &os.PathError{Op: "unlinkat", Path: path, Err: syscall.ENOTEMPTY}
	}
	return d.system.RemoveAll(path)
}

// What lands in a version while it is being deleted is deleted with it.
func TestPruneWhileWritten(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	for version := range loop.Version(3) {
		expectPublish(t, s, publication(version, 1))
	}
	s.disk = &occupied{times: 3}
	if err := s.Prune(2); err != nil {
		t.Error(err)
	}
	onlyVersions(t, dir, "v000002")
	s.disk = &occupied{times: 1 << 30}
	expectPublish(t, s, publication(3, 1))
	if err := s.Prune(3); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("a directory that stays occupied: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "v000002")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the version is still there: %v", err)
	}
}
