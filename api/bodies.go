package api

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/headway-rl/headway/api/protocol"
)

// smallBodyBytesMax bounds the bodies of paths that are not marked otherwise: their
// messages have names, numbers and short texts.
const smallBodyBytesMax = 1 << 20

// bodyLimit is how large a body of a path may be.
func (s *Server) bodyLimit(flags flag) int64 {
	switch {
	case flags&largeBody != 0:
		return s.opt.WeightsBytesMax
	case flags&tokensBody != 0:
		return s.opt.BodyBytesMax
	}
	return min(smallBodyBytesMax, s.opt.BodyBytesMax)
}

// held counts what a request's body takes of its role's room, so that many bodies that are
// each allowed cannot take the process' memory together.
type held struct {
	room  *atomic.Int64
	max   int64
	bytes int64
}

type heldKey struct{}

// holding returns the request with a count of its own. Bodies of weights are not held.
func (s *Server) holding(r *http.Request, role Role) (*http.Request, *held) {
	h := &held{room: &s.held[roleIndex(role)], max: s.opt.BodiesBytesMax}
	return r.WithContext(context.WithValue(r.Context(), heldKey{}, h)), h
}

// take counts bytes that were read, and refuses those beyond the room.
func (h *held) take(n int) error {
	h.bytes += int64(n)
	if h.room.Add(int64(n)) > h.max {
		return protocol.Refuse(protocol.CodeBusy, "the bodies that this role sends at the moment exceed %d bytes together: send it again when some have ended", h.max).With("bodies_bytes_max", h.max)
	}
	return nil
}

// release gives the room back, once the body is decoded or its request has ended.
func (h *held) release() {
	h.room.Add(-h.bytes)
	h.bytes = 0
}

// releaseBody gives back the room of a request whose body is decoded, and lets go of its text.
func releaseBody(r *http.Request) {
	if h, ok := r.Context().Value(heldKey{}).(*held); ok {
		h.release()
		r.Body = http.NoBody
	}
}

// heldBody is a body that counts.
type heldBody struct {
	io.ReadCloser
	held *held
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if full := b.held.take(n); full != nil {
		return n, full
	}
	return n, err
}
