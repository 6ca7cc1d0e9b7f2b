package remote

import (
	"context"
	"errors"
	"io"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/weights"
)

// Versions reads published weights for the API: it implements api.Versions.
type Versions struct {
	Store *weights.Store
}

// Newest is the newest version that has weights, loop.NoVersion if there is none.
func (v Versions) Newest() loop.Version { return v.Store.Newest() }

// ManifestText is a version's manifest, as its file has it.
func (v Versions) ManifestText(ctx context.Context, version loop.Version) ([]byte, error) {
	text, err := v.Store.ManifestText(ctx, version)
	return text, missing(err)
}

// OpenFile opens a file of a version at an offset; the size is the whole file's.
func (v Versions) OpenFile(ctx context.Context, version loop.Version, name string, offset int64) (content io.ReadCloser, size int64, err error) {
	content, size, err = v.Store.OpenFile(ctx, version, name, offset)
	return content, size, missing(err)
}

// missing tells what is not there from what is broken.
func missing(err error) error {
	if errors.Is(err, weights.ErrNotFound) || errors.Is(err, weights.ErrNoWeights) {
		return protocol.Refuse(protocol.CodeNotFound, "%v", err)
	}
	return err
}
