package starter

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
)

// staged begins the name of the directory in which files are made before they get their names.
const staged = ".headway-init-"

// Write writes files into a directory, which it makes where there is none. It overwrites nothing: where files of their
// names are there, the error names each one. Files get their names when all are on the disk, so that none is ever
// half-written. Where one cannot get its name, those before it are taken back.
func Write(dir string, files []File) error {
	if err := refuse(dir, files); err != nil {
		return err
	}
	_, err := os.Stat(dir)
	made := errors.Is(err, fs.ErrNotExist)
	within := dir
	if made {
		within = filepath.Dir(dir)
	}
	stage, err := os.MkdirTemp(within, staged)
	if err != nil {
		return failure.Usage("name a directory that can be made, in one that exists", "%w", err)
	}
	defer func() { _ = os.RemoveAll(stage) }()
	whole := filepath.Join(stage, "whole") // with the mode that the user's umask gives
	if err := os.Mkdir(whole, 0o777); err != nil {
		return err
	}
	for _, f := range files {
		if err := replace.File(filepath.Join(whole, f.Name), f.Content, 0o666); err != nil {
			return failure.Run("make room, and try again", "%w", err)
		}
	}
	if made {
		err = os.Rename(whole, dir)
	} else {
		err = named(whole, dir, files)
	}
	if err != nil {
		return failure.Run("nothing was written: try again", "%w", err)
	}
	return replace.Directory(within)
}

// refuse names the files that are there already.
func refuse(dir string, files []File) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return failure.Usage("name a directory", "%s is a file", dir)
	}
	there := slices.Clone(files)
	there = slices.DeleteFunc(there, func(f File) bool {
		_, err := os.Lstat(filepath.Join(dir, f.Name))
		return err != nil
	})
	if len(there) == 0 {
		return nil
	}
	names := make([]string, len(there))
	for i, f := range there {
		names[i] = filepath.Join(dir, f.Name)
	}
	return failure.Usage("name another directory, or move them away", "init overwrites nothing, and there is already: %s", strings.Join(names, ", "))
}

// named gives each staged file its name. A link does not replace a file that has come meanwhile.
func named(whole, dir string, files []File) error {
	for i, f := range files {
		if err := os.Link(filepath.Join(whole, f.Name), filepath.Join(dir, f.Name)); err != nil {
			for _, done := range files[:i] {
				err = errors.Join(err, os.Remove(filepath.Join(dir, done.Name)))
			}
			return err
		}
	}
	return nil
}
