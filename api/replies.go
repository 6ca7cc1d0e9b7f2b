package api

import (
	"bytes"
	"container/list"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// keyCharsMax bounds an Idempotency-Key; keptBytesMax a reply that is kept under one. What
// answers with more than that is idempotent by what it names: a batch is its lease's, a
// published version its number's.
const (
	keyCharsMax  = 128
	keptBytesMax = 1 << 20
	// keptOverhead is counted for every reply beside its body.
	keptOverhead = 512
)

// replies are kept by Idempotency-Key, so that a call that is sent again after its reply was
// lost gets the same one. Only replies that say it was done are kept: a refused call has
// changed nothing, and is judged anew.
type replies struct {
	clock    func() time.Time
	countMax int
	bytesMax int64
	ageMax   time.Duration

	mu    sync.Mutex
	byKey map[replyKey]*kept
	// done has the kept replies, oldest first.
	done  *list.List
	bytes int64
}

type replyKey struct {
	// token of the caller: one caller never sees another's replies.
	token        tokenID
	method, path string
	// key is the hash of the Idempotency-Key.
	key [sha256.Size]byte
}

// kept is a reply, or one on its way.
type kept struct {
	key    replyKey
	body   [sha256.Size]byte
	ended  chan struct{}
	whole  bool
	status int
	kind   string
	// text is sealed: a claim's reply has secrets.
	text []byte
	at   time.Time
}

// seal encrypts a reply by what its caller sends again, which is kept nowhere.
type seal struct{ cipher.AEAD }

func newSeal(key string, body []byte) (seal, error) {
	hash := sha256.New()
	hash.Write([]byte("reply\x00" + key + "\x00"))
	hash.Write(body)
	block, err := aes.NewCipher(hash.Sum(nil))
	if err != nil {
		return seal{}, err
	}
	sealed, err := cipher.NewGCMWithRandomNonce(block)
	return seal{sealed}, err
}

func newReplies(o Options) *replies {
	return &replies{clock: o.Clock, countMax: o.RepliesMax, bytesMax: o.ReplyBytesMax, ageMax: o.ReplyAge,
		byKey: make(map[replyKey]*kept), done: list.New()}
}

// begin returns the reply of a key, and whether the caller is the one to make it.
func (c *replies) begin(key replyKey, body [sha256.Size]byte) (k *kept, mine bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trim()
	if k, ok := c.byKey[key]; ok {
		if k.body != body {
			return nil, false, protocol.Refuse(protocol.CodeConflict, "the Idempotency-Key stands for another body already: give every call a key of its own, and send the same body with the same key")
		}
		return k, false, nil
	}
	k = &kept{key: key, body: body, ended: make(chan struct{})}
	c.byKey[key] = k
	return k, true, nil
}

// end keeps a reply, or forgets that there was to be one.
func (c *replies) end(k *kept, keep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.whole = keep
	if keep {
		k.at = c.clock()
		c.done.PushBack(k)
		c.bytes += k.size()
		c.trim()
	} else {
		delete(c.byKey, k.key)
	}
	close(k.ended)
}

func (k *kept) size() int64 { return int64(len(k.text)) + keptOverhead }

// trim forgets the oldest replies past a bound.
func (c *replies) trim() {
	now := c.clock()
	for front := c.done.Front(); front != nil; front = c.done.Front() {
		k := front.Value.(*kept)
		if c.done.Len() <= c.countMax && c.bytes <= c.bytesMax && now.Sub(k.at) < c.ageMax {
			return
		}
		c.done.Remove(front)
		delete(c.byKey, k.key)
		c.bytes -= k.size()
	}
}

// once runs a handler under a key: the first call of it does, others wait for its reply.
func (s *Server) once(w http.ResponseWriter, r *http.Request, who caller, key string, h handler) error {
	if len(key) > keyCharsMax {
		return protocol.Refuse(protocol.CodeInvalid, "the Idempotency-Key has %d characters: want at most %d", len(key), keyCharsMax)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	sealed, err := newSeal(key, text)
	if err != nil {
		return err
	}
	name := replyKey{who.token, r.Method, r.URL.Path, sha256.Sum256([]byte(key))}
	for {
		k, mine, err := s.replies.begin(name, sha256.Sum256(text))
		if err != nil {
			return err
		}
		if mine {
			return s.first(w, r, k, text, sealed, h)
		}
		select {
		case <-k.ended:
		case <-r.Context().Done():
			return r.Context().Err()
		}
		if k.whole {
			again, err := sealed.Open(nil, nil, k.text, nil)
			if err != nil {
				return err
			}
			if r.URL.Path == claimPath {
				s.claimedAgain(r.Context(), text, again)
			}
			w.Header().Set("Idempotency-Replayed", "true")
			writeBody(w, k.status, k.kind, again)
			return nil
		}
	}
}

// first makes the reply of a key and keeps it.
func (s *Server) first(w http.ResponseWriter, r *http.Request, k *kept, text []byte, sealed seal, h handler) error {
	r.Body = io.NopCloser(bytes.NewReader(text))
	copied := &copiedReply{ResponseWriter: w, status: http.StatusOK}
	keep := false
	defer func() { s.replies.end(k, keep) }()
	if err := h(copied, r); err != nil {
		return err
	}
	if copied.status == http.StatusOK && !copied.tooLarge {
		k.status, k.kind, k.text, keep = copied.status, w.Header().Get("Content-Type"), sealed.Seal(nil, nil, copied.text, nil), true
	}
	return nil
}

// copiedReply keeps what it writes.
type copiedReply struct {
	http.ResponseWriter
	status   int
	text     []byte
	tooLarge bool
}

// Unwrap is for http.ResponseController.
func (c *copiedReply) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader notes the status.
func (c *copiedReply) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Write keeps and writes. What the client no longer takes is kept all the same: it will ask again.
func (c *copiedReply) Write(p []byte) (int, error) {
	if len(c.text)+len(p) > keptBytesMax {
		c.tooLarge, c.text = true, nil
	}
	if !c.tooLarge {
		c.text = append(c.text, p...)
	}
	return c.ResponseWriter.Write(p)
}
