package plane

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
)

// signingName is the file in a run's directory by which keys of claims are signed.
const signingName = "claims.key"

// signing is the secret by which all control planes of a run sign the keys of claims, made by the first of them.
func signing(dir string) (*[32]byte, error) {
	path := filepath.Join(dir, signingName)
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
