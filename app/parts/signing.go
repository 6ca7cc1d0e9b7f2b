package parts

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
)

// SigningName is the file by which keys of claims are signed, in the directory of a run or cell.
const SigningName = "claims.key"

// Signing is the secret by which all processes of a directory sign the keys of claims. The first of them makes it. The control
// planes of a run have the run's directory, and those of a cell the cell's. One of them at a time calls it.
func Signing(dir string) (*[32]byte, error) {
	path := filepath.Join(dir, SigningName)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		data = make([]byte, 32)
		_, _ = rand.Read(data) // it ends the process rather than fail
		err = replace.File(path, data, 0o600)
	}
	if err != nil {
		return nil, failure.Run("", "the secret that signs claims: %w", err)
	}
	if len(data) != 32 {
		return nil, failure.Run("remove it: claims that were given out before end, and their rollouts are tried again", "%s has %d bytes, want 32", path, len(data))
	}
	return (*[32]byte)(data), nil
}
