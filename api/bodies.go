package api

import (
	"context"
	"io"
	"net/http"
	"reflect"
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

// decodingFactor is what a body takes of memory until it is decoded, for each of its bytes: an estimate of
// the peak at worst, of a list of 64-bit numbers of one digit each. Decoding one allocates 30 times its text in all,
// and 4.6 times are alive in the end. At the peak there are the text, the decoder's copy of it, and the list before and
// after it grew. chatFactor is of a request of an agent that is
// decoded: its messages, and the tokens that they are rendered to.
const decodingFactor, chatFactor = 10, 2

// held counts what a request's body takes of the room, so that many bodies that are each allowed
// cannot take the process' memory together. It counts decodingFactor for each byte until the body is
// decoded. Then it counts the size of the message, until the request has ended.
type held struct {
	role, all *atomic.Int64
	refused   *atomic.Int64
	max       int64
	text      int64
	bytes     int64
}

type heldKey struct{}

// holding returns the request with a count of its own. Bodies of weights are not held.
func (s *Server) holding(r *http.Request, role Role) (*http.Request, *held) {
	h := &held{role: &s.held[roleIndex(role)], all: &s.heldInAll, refused: &s.bodiesRefused, max: s.opt.BodiesBytesMax}
	return r.WithContext(context.WithValue(r.Context(), heldKey{}, h)), h
}

// take counts bytes that were read, and refuses those beyond the room. One role may have half of it. A
// body that is alone may have all that its own limit lets it have.
func (h *held) take(n int) error {
	h.text += int64(n)
	role, all := h.change(decodingFactor * int64(n))
	if role > h.max/2 && role > h.bytes || all > h.max && all > h.bytes {
		h.refused.Add(1)
		return protocol.Refuse(protocol.CodeBusy, "bound %s: bodies take %d bytes of memory, those of this role %d. All may take %d and a role half of it: send it again when some have ended", boundBodies, all, role, h.max).
			With("bound", boundBodies).With("bytes_max", h.max)
	}
	return nil
}

func (h *held) change(by int64) (role, all int64) {
	h.bytes += by
	return h.role.Add(by), h.all.Add(by)
}

// keep counts a decoded body by what its message takes.
func (h *held) keep(bytes int64) { h.change(bytes - h.bytes) }

// release gives the room back, once the request has ended.
func (h *held) release() { h.keep(0) }

// keepMessage counts the body of a request by its message, once it is decoded, and lets go of its text.
func keepMessage(r *http.Request, message any) {
	if h, ok := r.Context().Value(heldKey{}).(*held); ok {
		h.keep(sizeOf(reflect.ValueOf(message)))
		r.Body = http.NoBody
	}
}

// sizeOf is what lists and texts of a message take, in bytes.
func sizeOf(v reflect.Value) (bytes int64) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return sizeOf(v.Elem())
		}
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		bytes = int64(v.Cap()) * int64(v.Type().Elem().Size())
		switch v.Type().Elem().Kind() {
		case reflect.Slice, reflect.String, reflect.Struct, reflect.Pointer, reflect.Map:
			for i := range v.Len() {
				bytes += sizeOf(v.Index(i))
			}
		}
	case reflect.Map:
		for pairs := v.MapRange(); pairs.Next(); {
			bytes += 64 + sizeOf(pairs.Key()) + sizeOf(pairs.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			bytes += sizeOf(v.Field(i))
		}
	}
	return bytes
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
