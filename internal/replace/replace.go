// Package replace writes whole files: the new content is written aside, and takes the old one's name once it is
// on the disk. A reader has the old file or the new one, and a crash in the middle loses neither.
package replace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// File makes content the file at path, with mode perm less the process's umask. A file that is there is
// replaced, and its mode kept; a link is replaced, not followed. When File returns nil, the file outlives a crash of
// the machine, name and all. When it fails to write, the old file is as it was, and nothing is left beside it.
func File(path string, content []byte, perm os.FileMode) error {
	if err := whole(path, content, perm); err != nil {
		return err
	}
	return Directory(filepath.Dir(path))
}

// Renamed returns the path of the file now in dir. A file that an earlier version left there under
// the name before gets its new name first, unless both are there. No file of either name is no error.
func Renamed(dir, before, now string) (string, error) {
	path := filepath.Join(dir, now)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, nil // what it cannot be asked shows when it is opened
	}
	if err := os.Rename(filepath.Join(dir, before), path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	return path, nil
}
