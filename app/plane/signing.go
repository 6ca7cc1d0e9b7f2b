package plane

import (
	"context"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/internal/failure"
)

// signingNote is the name under which the secret that signs claims is noted in a cluster.
const signingNote = "claims"

// signing is the secret that signs claims. In a cluster it is that of the writer before, whose directory may be another: a claim
// outlives a takeover.
func signing(dir string, shared notes) (*[32]byte, error) {
	own, err := parts.Signing(dir)
	if err != nil || shared == nil {
		return own, err
	}
	noted, err := shared.Noted(context.Background(), signingNote)
	if err == nil && len(noted) == len(own) {
		return (*[32]byte)(noted), nil
	}
	if err == nil {
		err = shared.Note(context.Background(), signingNote, own[:])
	}
	if err != nil {
		return nil, failure.Run("", "the secret that signs claims: %w", err)
	}
	return own, nil
}
