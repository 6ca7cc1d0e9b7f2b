package upstream

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Label is the beginning of what names a version at servers: v17. A dash and the engine's nonce
// follow, so that another process's label is not taken for this one's.
func Label(version loop.Version) string { return "v" + strconv.FormatInt(int64(version), 10) }

// label names a version at the server.
func (e *Engine) label(version loop.Version) string { return Label(version) + "-" + e.nonce }

// newNonce returns what tells this engine's requests and salts apart from those of any other
// process that uses the server, before, beside or after it.
func newNonce() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// requestID names one call. SGLang aborts every request whose id begins with the one it is given:
// the numbers have a fixed width and the id ends in a character that is nowhere else in one, so
// that none is the beginning of another. The call's own number makes retries differ.
func requestID(nonce string, req *port.GenerateRequest, call int64) string {
	id := req.Rollout
	return fmt.Sprintf("hw-%s-g%016x-s%08x-a%08x-t%08x-c%016x|", nonce, uint64(id.Group), uint32(id.Sample), uint32(id.Attempt), uint32(req.Turn), uint64(call))
}

// sessionID names the rollout, for caches of prefixes.
func sessionID(nonce string, id port.RolloutID) string {
	return fmt.Sprintf("hw-%s-g%d-s%d-a%d", nonce, id.Group, id.Sample, id.Attempt)
}
