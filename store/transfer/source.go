package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// Source serves the copies of one node to others: the origin's whole ones, and a
// receiver's while they are still arriving. It is an http.Handler for
//
//	GET {prefix}/{version}             what there is of a version: an Offer
//	GET {prefix}/{version}/chunks      its chunks from ?from= on, each as soon as it is there
//
// both with ?form= for a version that was cast.
type Source struct {
	// Limit bounds what is sent, in bytes a second over all connections; nil for no bound.
	Limit *Bucket
	// Secret signs the keys that requests must bring as the bearer, each for one version. A control plane,
	// which asks for tokens itself, leaves it empty: then no key is asked for.
	Secret string

	mu     sync.Mutex
	copies map[offerKey]*Copy
	added  chan struct{} // closed when a copy is added; nil while nobody waits
}

// offerKey names a copy: a version in one form.
type offerKey struct {
	version loop.Version
	form    string
}

// Patience is how long a request for a version that is not here waits for it to begin to arrive. A
// receiver and its parent are told to load it at about the same time.
const Patience = 3 * time.Second

// Offer says what a node has of a version.
type Offer struct {
	Version  loop.Version    `json:"version"`
	Manifest json.RawMessage `json:"manifest,omitempty"`
	// ManifestText is the manifest byte for byte, since it ends in its own hash.
	ManifestText string `json:"manifest_text"`
	Parts        []Part `json:"parts"`
}

// Add offers a copy in place of an earlier one of the same version, which is closed.
func (s *Source) Add(c *Copy) {
	s.mu.Lock()
	key := offerKey{c.Version, c.Form}
	old := s.copies[key]
	if s.copies == nil {
		s.copies = make(map[offerKey]*Copy)
	}
	s.copies[key] = c
	if s.added != nil {
		close(s.added)
		s.added = nil
	}
	s.mu.Unlock()
	if old != nil && old != c {
		old.Close()
	}
}

// Remove ends the offer of a version in all its forms.
func (s *Source) Remove(version loop.Version) {
	s.remove(func(v loop.Version) bool { return v == version })
}

// RemoveBelow ends the offers of all versions before one.
func (s *Source) RemoveBelow(version loop.Version) {
	s.remove(func(v loop.Version) bool { return v < version })
}

func (s *Source) remove(which func(loop.Version) bool) {
	s.mu.Lock()
	var gone []*Copy
	for key, c := range s.copies {
		if which(key.version) {
			delete(s.copies, key)
			gone = append(gone, c)
		}
	}
	s.mu.Unlock()
	for _, c := range gone {
		c.Close()
	}
}

// Find returns the copy of a version in a form, nil if there is none.
func (s *Source) Find(version loop.Version, form string) *Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies[offerKey{version, form}]
}

// await returns the copy of a version, as soon as it begins to arrive; nil if that takes too long.
func (s *Source) await(ctx context.Context, key offerKey) *Copy {
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	for {
		s.mu.Lock()
		c := s.copies[key]
		if s.added == nil {
			s.added = make(chan struct{})
		}
		added := s.added
		s.mu.Unlock()
		if c != nil {
			return c
		}
		select {
		case <-added:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// Handler serves below a prefix such as /transfer.
func (s *Source) Handler(prefix string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+prefix+"/{version}", s.offer)
	mux.HandleFunc("GET "+prefix+"/{version}/chunks", s.chunks)
	return mux
}

// Digest is the hash of what is offered of a version in a form, empty where it is not offered.
func (s *Source) Digest(version loop.Version, form string) string {
	c := s.Find(version, form)
	if c == nil {
		return ""
	}
	return offerDigest(string(c.Manifest), c.Parts)
}

// named finds the copy that a request names, or answers it.
func (s *Source) named(w http.ResponseWriter, r *http.Request) *Copy {
	version, err := strconv.ParseInt(r.PathValue("version"), 10, 64)
	if err != nil || version < 0 {
		refuse(w, protocol.CodeInvalid, "version in the path is %.40q: want a number of at least 0 in decimal digits", r.PathValue("version"))
		return nil
	}
	form := r.URL.Query().Get("form")
	wanted := offerKey{loop.Version(version), form}
	if s.Secret != "" {
		if err := checkKey(s.Secret, bearerOf(r.Header.Get("Authorization")), wanted, time.Now()); err != nil {
			refuse(w, protocol.CodeUnauthorized, "%v", err)
			return nil
		}
	}
	c := s.await(r.Context(), wanted)
	if c == nil {
		refuse(w, protocol.CodeNotFound, "version %d%s is not here", version, inForm(form))
	}
	return c
}

// refuse answers as every refusal of the control plane does.
func refuse(w http.ResponseWriter, code protocol.Code, format string, args ...any) {
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code.Status())
	_ = json.NewEncoder(w).Encode(protocol.ErrorBody{Error: *protocol.Refuse(code, format, args...)})
}

func inForm(form string) string {
	if form == "" {
		return ""
	}
	return fmt.Sprintf(" as %.40q", form)
}

func (s *Source) offer(w http.ResponseWriter, r *http.Request) {
	if c := s.named(w, r); c != nil {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Offer{Version: c.Version, ManifestText: string(c.Manifest), Parts: c.Parts})
	}
}

// chunks streams. What a file has goes from the page cache to the socket without
// passing through this process where the connection allows it.
func (s *Source) chunks(w http.ResponseWriter, r *http.Request) {
	c := s.named(w, r)
	if c == nil {
		return
	}
	from, err := strconv.Atoi(r.URL.Query().Get("from"))
	if err != nil || from < 0 || from > c.Chunks() {
		refuse(w, protocol.CodeInvalid, "from is %.40q: want a chunk from 0 to %d", r.URL.Query().Get("from"), c.Chunks())
		return
	}
	done, ok := c.use()
	if !ok {
		refuse(w, protocol.CodeNotFound, "version %d is not here any more", c.Version)
		return
	}
	defer done()
	left := c.size - int64(from)*ChunkBytes + int64(c.Chunks()-from)*headBytes
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(max(left, 0), 10))
	if r.Method == http.MethodHead {
		return
	}
	files, err := c.reopen()
	if err != nil {
		refuse(w, protocol.CodeNotFound, "version %d is not here any more: %v", c.Version, err)
		return
	}
	defer closeAll(files)
	scratch := make([]byte, ChunkBytes)
	for i := from; i < c.Chunks(); i++ {
		if err := s.chunk(w, r, c, files, i, scratch); err != nil {
			panic(http.ErrAbortHandler) // the only way to end a body that is too short
		}
	}
}

// chunk sends one chunk from files of this connection's own: sending from where a file
// stands is what the kernel can do without a copy.
func (s *Source) chunk(w http.ResponseWriter, r *http.Request, c *Copy, files []*os.File, index int, scratch []byte) error {
	sum, err := c.await(r.Context(), index, scratch)
	if err != nil {
		return err
	}
	h := head{uint32(index), uint32(c.chunkBytes(index)), sum}
	if _, err := w.Write(h.append(scratch[:0])); err != nil {
		return err
	}
	return c.pieces(index, func(part int, offset int64, length int) error {
		if _, err := files[part].Seek(offset, io.SeekStart); err != nil {
			return err
		}
		return s.Limit.pieces(r.Context(), length, func(n int) error {
			_, err := io.Copy(w, io.LimitReader(files[part], int64(n)))
			if flusher, ok := w.(http.Flusher); ok && n < length {
				flusher.Flush()
			}
			return err
		})
	})
}
