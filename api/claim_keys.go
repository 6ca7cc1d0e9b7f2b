package api

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/headway-rl/headway/api/protocol"
)

// claimKeys signs what a claim allows. The key, for an agent, samples for one rollout under /v1. The
// secret, for its worker, samples, touches and finishes it. Both are signatures and stored nowhere: whoever
// has the signing secret can check them without asking the rollout. That secret is drawn when the
// server is made, unless claims outlive the process (Ports.Signing).
type claimKeys struct {
	secret atomic.Pointer[[sha256.Size]byte]
	run    string
	url    string
}

// rolloutCallsMin is how many calls one rollout's key may have under way, however few all keys may.
const rolloutCallsMin = 8

// Purposes of a signature: a key is never a secret.
const (
	purposeKey    = "key"
	purposeSecret = "secret"
)

// macChars is the length of a signature in base64.
var macChars = base64.RawURLEncoding.EncodedLen(sha256.Size)

func newClaimKeys(run, url string) *claimKeys {
	k := &claimKeys{run: run, url: url}
	var secret [sha256.Size]byte
	_, _ = rand.Read(secret[:]) // it ends the process rather than fail
	k.secret.Store(&secret)
	return k
}

// sign is the signature of a claim for a purpose. Neither purpose nor id has a zero byte.
func (k *claimKeys) sign(purpose, id string) string {
	mac := hmac.New(sha256.New, k.secret.Load()[:])
	mac.Write([]byte(purpose + "\x00" + id + "\x00" + k.run))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// key is an agent's API key: ROLLOUT.SIGNATURE.
func (k *claimKeys) key(id string) string { return id + "." + k.sign(purposeKey, id) }

// rollout is the claim that a key samples for, empty for a key that was not signed here.
func (k *claimKeys) rollout(key string) string {
	id, mac, ok := cutKey(key)
	if !ok || !hmac.Equal([]byte(mac), []byte(k.sign(purposeKey, id))) {
		return ""
	}
	return id
}

// check refuses a call of a worker without its claim's secret. The refusal is the same for every
// rollout: nobody learns from it which there are, or who plays them.
func (k *claimKeys) check(id, secret string) error {
	switch {
	case !isClaimID(id): // it may be somebody's secret
		return protocol.Refuse(protocol.CodeNotFound, "the rollout is named by %d characters that are no claim's: want the id of a claim, such as g12-s3-a1", len(id))
	case secret == "":
		return protocol.Refuse(protocol.CodeInvalid, "secret is missing: send the claim's secret, which stands beside its id in the answer to claim. A client that knows of no secret is too old for this control plane").With("field", "secret")
	case !hmac.Equal([]byte(secret), []byte(k.sign(purposeSecret, id))):
		return protocol.Refuse(protocol.CodeExpired, "the secret is of no claim of %s that was given out at this address: claim another", id)
	}
	return nil
}

// grant gives every claim its key, its secret, and where both are taken.
func (k *claimKeys) grant(claims *protocol.Claims) {
	for i := range claims.Rollouts {
		c := &claims.Rollouts[i]
		c.Key, c.Secret, c.URL = k.key(c.ID), k.sign(purposeSecret, c.ID), k.url
	}
}

// cutKey takes a text apart that has the form of a key, whoever signed it.
func cutKey(text string) (id, mac string, ok bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 || len(text)-at-1 != macChars || !isClaimID(text[:at]) {
		return "", "", false
	}
	return text[:at], text[at+1:], true
}

// isClaimID reports whether a text has the form of a claim's id: g12-s3-a1, or e12-s3-a1 of an evaluation.
func isClaimID(text string) bool {
	parts := strings.Split(text, "-")
	if len(parts) != 3 {
		return false
	}
	for i, letters := range []string{"ge", "s", "a"} {
		digits := strings.TrimLeft(parts[i], letters)
		ok := len(digits) == len(parts[i])-1
		n, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
			return false
		}
	}
	return true
}

// admitAgent lets the holder of a key in where the path is for agents, and names the rollout to the handler.
func (s *Server) admitAgent(r *http.Request, key string, roles Role) (caller, error) {
	if roles&roleAgent == 0 {
		return caller{}, protocol.Refuse(protocol.CodeForbidden, "a rollout's key samples for it at /v1/chat/completions and /v1/completions, and may do nothing else here")
	}
	id := s.keys.rollout(key)
	named := r.Header.Get(protocol.RolloutHeader)
	if id == "" { // the key may be the writer's, whose claim goes on
		if err := s.ports().Plane.Ready(); err != nil {
			return caller{}, notReady(err)
		}
		id = s.keys.rollout(key) // it has become ready since
	}
	switch {
	case id == "":
		err := error(protocol.Refuse(protocol.CodeExpired, "the key is of no claim that was given out at this address: claim another rollout"))
		if port := s.ports().Rollouts; port != nil { // it may be of the process in the place of this one
			claim, _, _ := cutKey(key)
			err = port.Lasting(r.Context(), claim, err)
		}
		return caller{}, err
	case named != "" && named != id:
		return caller{}, protocol.Refuse(protocol.CodeInvalid, "the API key and the header %s name different rollouts: leave the header out", protocol.RolloutHeader)
	}
	r.Header.Set(protocol.RolloutHeader, id)
	return caller{role: roleAgent, rollout: id}, nil
}

// enterRollout counts a call among those with one rollout's key: an eighth of what all keys may have under way, and at
// least rolloutCallsMin. A rollout samples one call after the other, so that more only wait.
func (s *Server) enterRollout(id string) (leave func(), err error) {
	limit := max(rolloutCallsMin, s.opt.RequestsMax/8)
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	if s.calls[id] >= limit {
		s.requestsRefused.Add(1)
		return nil, protocol.Refuse(protocol.CodeBusy, "bound %s: %d calls with this rollout's key are under way: wait for some of them", boundRequests, limit).
			With("bound", boundRequests).With("requests_max", limit)
	}
	s.calls[id]++
	return func() {
		s.callsMu.Lock()
		defer s.callsMu.Unlock()
		if s.calls[id]--; s.calls[id] == 0 {
			delete(s.calls, id)
		}
	}, nil
}

// noKey refuses a call that samples without a rollout's key, and says what it has instead.
func (s *Server) noKey(w http.ResponseWriter, secret string) error {
	if s.opt.Tokens != nil {
		if role, _ := s.opt.Tokens.find([]byte(secret)); role != 0 {
			return protocol.Refuse(protocol.CodeForbidden, "a token of role %s may not sample under /v1: the API key is the claim's key, as claim has answered it", role).With("role", role.String())
		}
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	const want = "want the claim's key as the API key, which stands beside its id in the answer to claim"
	switch colon := strings.LastIndexByte(secret, ':'); {
	case secret == "":
		return protocol.Refuse(protocol.CodeUnauthorized, "no API key: "+want)
	case colon >= 0 && isClaimID(secret[colon+1:]):
		return protocol.Refuse(protocol.CodeUnauthorized, "the API key is TOKEN:ROLLOUT, which would give the worker's token to its agent: "+want)
	case isClaimID(secret):
		return protocol.Refuse(protocol.CodeUnauthorized, "the API key is a claim's id alone: "+want)
	}
	return protocol.Refuse(protocol.CodeUnauthorized, "the API key is not known: "+want)
}

// Signatures in what a log is told: a key anywhere, and the field of a body that has a secret.
var (
	keyText    = regexp.MustCompile(`([ge]\d+-s\d+-a\d+)\.[A-Za-z0-9_-]{8,}`)
	secretText = regexp.MustCompile(`(?i)("secret"\s*:\s*")[^"]*`)
)

// unsigned takes keys and secrets out of a text for the log.
func unsigned(text string) string {
	return secretText.ReplaceAllString(keyText.ReplaceAllString(text, "$1.…"), "$1…")
}
