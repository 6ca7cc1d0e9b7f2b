package transfer

import (
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/loop"
)

// Has reports whether a version is there, whole.
func (s *Store) Has(version loop.Version) bool {
	_, err := os.Stat(filepath.Join(s.Path(version), manifestName))
	return err == nil
}
