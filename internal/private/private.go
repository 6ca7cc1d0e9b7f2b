// Package private makes directories that have prompts, responses and tokens: those of runs and receivers.
package private

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Make makes a directory for its owner alone, and those above it as usual. A directory that is there keeps its mode.
// One that another user made is refused: links in it would lead what is written to files of others.
func Make(dir string) error {
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	for _, look := range []func(string) (os.FileInfo, error){os.Lstat, os.Stat} { // of a link, both its own owner and its target's
		info, err := look(dir)
		if err != nil {
			return err
		}
		if user, foreign := foreignOwner(dir, info); foreign {
			return fmt.Errorf("%s belongs to another user (uid %d), who could lead its files elsewhere: remove it, take it over by chown -R, or use another", dir, user)
		}
	}
	return nil
}
