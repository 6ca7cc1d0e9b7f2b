package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// notePrefix begins the keys of notes, beside the writer's lease.
const notePrefix = "note."

// Note keeps a short text under a name, a plain word, for the next writer of the run, whichever directory
// that has. Only the writer may.
func (s *Store) Note(ctx context.Context, name string, text []byte) error {
	l, err := s.writer()
	if err != nil {
		return err
	}
	try, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if _, err := l.bucket.Put(try, notePrefix+name, text); err != nil {
		return fmt.Errorf("store: note %s: %w", name, err)
	}
	return nil
}

// Noted returns what a writer has noted under a name, nil where none has.
func (s *Store) Noted(ctx context.Context, name string) ([]byte, error) {
	l, err := s.writer()
	if err != nil {
		return nil, err
	}
	try, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	entry, err := l.bucket.Get(try, notePrefix+name)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("store: note %s: %w", name, err)
	}
	return entry.Value(), nil
}
