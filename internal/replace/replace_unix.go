//go:build !windows

package replace

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// whole writes aside in the same directory, since a rename does not cross file systems, and syncs before it renames.
func whole(path string, content []byte, perm os.FileMode) error {
	return renameio.WriteFile(path, content, perm, renameio.WithTempDir(filepath.Dir(path)))
}

// Directory puts a directory's names on the disk, so that they outlive a crash of the machine.
func Directory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
