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
func signing(ctx context.Context, dir string, shared notes) (*[32]byte, error) {
	own, err := parts.Signing(dir)
	if err != nil || shared == nil {
		return own, err
	}
	noted, err := shared.NoteFirst(ctx, signingNote, own[:])
	if err == nil && len(noted) != len(own) {
		noted, err = own[:], shared.Note(ctx, signingNote, own[:])
	}
	if err != nil {
		return nil, failure.Run("", "the secret that signs claims: %w", err)
	}
	return (*[32]byte)(noted), nil
}
