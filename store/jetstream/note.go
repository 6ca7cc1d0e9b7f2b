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
// that has. Only the writer may. It asks until NATS has an answer, or the context ends.
func (s *Store) Note(ctx context.Context, name string, text []byte) error {
	l, err := s.writer()
	if err != nil {
		return err
	}
	err = s.again(ctx, func(ctx context.Context) error {
		_, err := l.bucket.Put(ctx, notePrefix+name, text)
		return err
	})
	if err != nil {
		return fmt.Errorf("store: note %s: %w", name, err)
	}
	return nil
}

// NoteFirst is Note for a text that all writers share. It returns the text that stands: the one that was noted first. A writer
// that another one has taken over from, and that does not know it yet, changes none.
func (s *Store) NoteFirst(ctx context.Context, name string, text []byte) ([]byte, error) {
	l, err := s.writer()
	if err != nil {
		return nil, err
	}
	err = s.again(ctx, func(ctx context.Context) error {
		_, err := l.bucket.Create(ctx, notePrefix+name, text)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return s.Noted(ctx, name)
	case err != nil:
		return nil, fmt.Errorf("store: note %s: %w", name, err)
	}
	return text, nil
}

// Noted returns what a writer has noted under a name, nil where none has. It asks like Note.
func (s *Store) Noted(ctx context.Context, name string) ([]byte, error) {
	l, err := s.writer()
	if err != nil {
		return nil, err
	}
	var entry jetstream.KeyValueEntry
	err = s.again(ctx, func(ctx context.Context) (err error) {
		entry, err = l.bucket.Get(ctx, notePrefix+name)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("store: note %s: %w", name, err)
	}
	return entry.Value(), nil
}
