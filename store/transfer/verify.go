package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headway-rl/headway/internal/parallel"
)

// errForged is wrapped by the error of a version whose files are not those of the control plane.
var errForged = errors.New("it is not what the control plane published")

// Digest is the hash of what a source offers of a version: its manifest, and its parts in order.
func (o *Offer) Digest() string { return offerDigest(o.ManifestText, o.Parts) }

func offerDigest(manifest string, parts []Part) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d\n%s", len(manifest), manifest)
	for _, p := range parts {
		fmt.Fprintf(sum, "%d %q\n", p.Size, p.Name)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// hashes are those of a copy's parts, by its manifest.
func (c *Copy) hashes() ([]string, error) {
	var manifest struct {
		Files []struct{ Name, Hash string }
	}
	if err := json.Unmarshal(c.Manifest, &manifest); err != nil {
		return nil, fmt.Errorf("transfer: the manifest of version %d: %w", c.Version, err)
	}
	byName := make(map[string]string, len(manifest.Files))
	for _, f := range manifest.Files {
		byName[f.Name] = f.Hash
	}
	out := make([]string, len(c.Parts))
	for i, p := range c.Parts {
		if out[i] = byName[p.Name]; out[i] == "" {
			return nil, fmt.Errorf("transfer: version %d: the manifest has no hash of %q", c.Version, p.Name)
		}
	}
	return out, nil
}

// verify compares every file with its hash in the manifest, while it arrives: the processor works
// while the network does, on several files where the network is faster. Its error wraps errForged where
// a file differs.
func (c *Copy) verify(ctx context.Context) error {
	wanted, err := c.hashes()
	if err != nil {
		return err
	}
	done, ok := c.use()
	if !ok {
		return fmt.Errorf("transfer: version %d is not here any more", c.Version)
	}
	defer done()
	begins, begin := make([]int64, len(c.Parts)), int64(0)
	for i, p := range c.Parts {
		begins[i] = begin
		begin += p.Size
	}
	_, _, err = parallel.All(ctx, len(c.Parts), nil, func(i int) (struct{}, error) {
		return struct{}{}, c.verifyPart(ctx, i, begins[i], wanted[i])
	})
	return err
}

// hashedBytes is how much is read and hashed at once.
const hashedBytes = 1 << 20

// verifyPart compares one file, which begins at that byte of the copy, with its hash.
func (c *Copy) verifyPart(ctx context.Context, part int, first int64, wanted string) error {
	p, sum := c.Parts[part], sha256.New()
	buffer := make([]byte, min(hashedBytes, p.Size))
	for at := int64(0); at < p.Size; at += hashedBytes {
		n := min(hashedBytes, p.Size-at)
		if err := c.arrived(ctx, int((first+at+n-1)/ChunkBytes)); err != nil {
			return err
		}
		if _, err := c.files[part].ReadAt(buffer[:n], at); err != nil {
			return fmt.Errorf("transfer: reading version %d: %w", c.Version, err)
		}
		sum.Write(buffer[:n])
	}
	if found := "sha256:" + hex.EncodeToString(sum.Sum(nil)); found != wanted {
		return fmt.Errorf("transfer: version %d: %s has %s, its manifest says %s: %w", c.Version, p.Name, found, wanted, errForged)
	}
	return nil
}

// arrived waits until a chunk is there.
func (c *Copy) arrived(ctx context.Context, index int) error {
	for {
		c.mu.Lock()
		there, moved, err := index < c.here, c.moved, c.err
		c.mu.Unlock()
		if there || err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
