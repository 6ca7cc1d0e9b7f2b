package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Objects are the run's files in the object store, such as the weights of published versions.
// A file is there whole or not at all, and its checksum is verified as it is read.
type Objects struct {
	run    string
	bucket jetstream.ObjectStore
}

// ErrNoObject is wrapped where a file is asked for that is not there.
var ErrNoObject = errors.New("no such file in the object store")

// Objects opens the run's object store, which is made if it is missing. It needs no lease:
// names of files that differ keep writers apart.
func (s *Store) Objects(ctx context.Context) (*Objects, error) {
	bucket, err := s.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: s.names.objects, Description: "files of the run " + s.options.Run, Replicas: s.options.Replicas, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return nil, fmt.Errorf("store: the object store of %s: %w", s.options.Run, err)
	}
	return &Objects{s.options.Run, bucket}, nil
}

// Put stores a file under a name, in place of what it named before, and returns its size.
func (o *Objects) Put(ctx context.Context, name string, src io.Reader) (int64, error) {
	info, err := o.bucket.Put(ctx, jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: 512 << 10}}, src)
	if err != nil {
		return 0, o.fail("storing", name, err)
	}
	return int64(info.Size), nil
}

// Open opens a file. Reading it ends with an error instead of io.EOF where it does not verify.
func (o *Objects) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := o.bucket.Get(ctx, name)
	if err != nil {
		return nil, o.fail("reading", name, err)
	}
	return r, nil
}

// List returns the names that begin with prefix, in order.
func (o *Objects) List(ctx context.Context, prefix string) ([]string, error) {
	infos, err := o.bucket.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, fmt.Errorf("store: files of %s: %w", o.run, err)
	}
	var names []string
	for _, info := range infos {
		if strings.HasPrefix(info.Name, prefix) {
			names = append(names, info.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Delete removes a file. One that is not there is no error.
func (o *Objects) Delete(ctx context.Context, name string) error {
	if err := o.bucket.Delete(ctx, name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return o.fail("deleting", name, err)
	}
	return nil
}

func (o *Objects) fail(what, name string, err error) error {
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("store: %s %s of %s: %w", what, name, o.run, ErrNoObject)
	}
	return fmt.Errorf("store: %s %s of %s: %w", what, name, o.run, err)
}
