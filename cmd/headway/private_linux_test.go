package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A run's directory is its owner's alone, its prompts, responses, logs and token are so even where the directory was
// opened, and the versions in it can then be read by engines of others. The folder of all runs stays as it was.
func TestRunsArePrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	for name, arguments := range map[string][]string{
		"run":   {"run", "--steps", "3", "--set", "store.samples_every=1"},
		"serve": {"serve", "--listen", "127.0.0.1:0", "--steps", "3", "--set", "trainer.kind=embedded"},
	} {
		folder := filepath.Join(t.TempDir(), "runs")
		code, _, stderr := headway(t, append(arguments, "--dir", folder, "--name", "r")...)
		if code != 0 {
			t.Fatalf("%s: %d, %s", name, code, stderr)
		}
		if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		run, files := filepath.Join(folder, "r"), 0
		err := filepath.WalkDir(run, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			inside, _ := filepath.Rel(run, path)
			public := info.Mode().Perm()&0o077 != 0
			switch {
			case strings.HasPrefix(inside, "state/nats/"): // the server's own files, in a directory of ours
			case strings.HasPrefix(inside, "weights"):
				if info.Mode().Perm()&0o044 != 0o044 {
					t.Errorf("%s: %s has mode %v: engines of others could not read it, where the run's directory was opened", name, inside, info.Mode())
				}
			case public:
				t.Errorf("%s: %s has mode %v", name, inside, info.Mode())
			}
			files++
			return nil
		})
		if err != nil || files < 5 {
			t.Errorf("%s: %d files, %v", name, files, err)
		}
	}
}

// A run directory that another user made before is refused: its links would lead what the run writes to files of others.
func TestRunDirectoriesOfOthersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root alone can make what belongs to another user")
	}
	for name, arguments := range map[string][]string{
		"serve":   {"serve", "--listen", "127.0.0.1:0", "--steps", "1", "--set", "trainer.kind=embedded", "--set", "store.samples_every=1", "--name", "r", "--dir"},
		"receive": {"receive", "http://127.0.0.1:1", "--engine", "e", "--dir"},
	} {
		folder := t.TempDir()
		victim, run := filepath.Join(folder, "victim"), filepath.Join(folder, "r")
		err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o600), os.MkdirAll(filepath.Join(run, "samples"), 0o777),
			os.Symlink(victim, filepath.Join(run, "samples", "step-000001.txt")), os.Lchown(run, 65534, 65534))
		if err != nil {
			t.Skip("this file system gives nothing away: ", err)
		}
		where := folder
		if name == "receive" {
			where = run
		}
		code, _, stderr := headway(t, append(arguments, where)...)
		if code == 0 || !strings.Contains(stderr, "belongs to another user (uid 65534)") {
			t.Errorf("%s: %d, %s", name, code, stderr)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
			t.Errorf("%s wrote %.40q into a file of others, %v", name, text, err)
		}
	}
}
