// Package replace writes whole files: the new content is written aside, and takes the old one's name once it is
// on the disk. A reader has the old file or the new one, and a crash in the middle loses neither.
package replace

import (
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
