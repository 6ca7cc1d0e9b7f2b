package weights

import (
	"crypto/sha256"
	"hash"
	"io"
)

// hashed is a file that is hashed while it is written.
type hashed struct {
	to   io.Writer
	sum  hash.Hash
	size int64
}

func (h *hashed) begin(w io.Writer) { h.to, h.sum, h.size = w, sha256.New(), 0 }

func (h *hashed) Write(p []byte) (int, error) {
	n, err := h.to.Write(p)
	h.sum.Write(p[:n]) // never fails
	h.size += int64(n)
	return n, err
}

// file says what was written.
func (h *hashed) file(name string) File {
	if h.sum == nil {
		return File{Name: name}
	}
	return File{Name: name, Size: h.size, Hash: hashText(h.sum.Sum(nil))}
}
