package protocol

import "io"

// Body is a reply that is written as it lies: a batch or a file.
type Body interface {
	// Size in bytes.
	Size() int64
	io.WriterTo
	// Close frees what it holds.
	Close() error
}
