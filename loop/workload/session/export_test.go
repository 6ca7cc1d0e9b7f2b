package session

import (
	"errors"
	"io"
)

// Read reads from in, which may be compressed; name stands in errors. Close releases memory alone.
func Read(in io.Reader, name string) (*Record, error) {
	r, err := newRecord(in, name)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Summarize reads a record to its end. Its memory does not grow with the record.
func Summarize(r *Record) (Summary, error) {
	c := NewCounter(r)
	for s, err := range r.Sessions() {
		if err != nil {
			return Summary{}, err
		}
		c.Add(&s)
	}
	return c.Summary(), nil
}
