package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
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
// while the network does. Its error wraps errForged where a file differs.
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
	sums := make([]hash.Hash, len(c.Parts))
	for i := range sums {
		sums[i] = sha256.New()
	}
	buffer := make([]byte, min(ChunkBytes, c.size))
	for i := range c.Chunks() {
		if err := c.arrived(ctx, i); err != nil {
			return err
		}
		err := c.pieces(i, func(part int, offset int64, length int) error {
			_, err := io.CopyBuffer(sums[part], io.NewSectionReader(c.files[part], offset, int64(length)), buffer)
			return err
		})
		if err != nil {
			return fmt.Errorf("transfer: reading version %d: %w", c.Version, err)
		}
	}
	for i, p := range c.Parts {
		if found := "sha256:" + hex.EncodeToString(sums[i].Sum(nil)); found != wanted[i] {
			return fmt.Errorf("transfer: version %d: %s has %s, its manifest says %s: %w", c.Version, p.Name, found, wanted[i], errForged)
		}
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
