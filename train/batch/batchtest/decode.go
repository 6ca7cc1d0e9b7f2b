// Package batchtest reads a batch's body as a trainer does, so that tests see the bytes and not the structs that made them.
package batchtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/weights"
)

// The form, as docs/trainer.md has it: the entry of the header with the lease, and the tensors.
const (
	metadataEntry  = "headway"
	rolloutsTensor = "rollouts"
	agentsTensor   = "agents"
	logprobMax     = 1e-3
)

var dtypes = []struct {
	name  string
	dtype weights.DType
}{
	{"offsets", "I64"}, {"groups", "I64"},
	{"tokens", "I32"}, {"logprobs", "F32"}, {"versions", "I32"},
	{"advantages", "F32"}, {"rewards", "F32"}, {"samples", "I32"}, {rolloutsTensor, "I32"}, {agentsTensor, "I32"},
	{"loss_mask", "U8"},
}

func finite(x float32) bool { return x-x == 0 }

// Tensors is a body that has been read: R sequences packed one after the other, N
// tokens in all. Package protocol says what each tensor holds.
type Tensors struct {
	Lease               protocol.Lease
	Tokens              []int32   // N
	Offsets             []int64   // R+1
	LossMask            []uint8   // N
	Logprobs            []float32 // N
	Versions            []int32   // N
	Advantages, Rewards []float32 // R
	Groups              []int64   // R
	Samples             []int32   // R
	// Rollout numbers the rollouts of the share from 0, by sequence; nil where each left one. R
	Rollout []int32
	// Agents are places in Lease.Agents, -1 for none; nil where the batch names none. R
	Agents []int32
}

// Rollouts is how many rollouts the sequences are of.
func (t *Tensors) Rollouts() int {
	if n := len(t.Rollout); n > 0 {
		return int(t.Rollout[n-1]) + 1
	}
	return len(t.Rewards)
}

// rollout is the number of a sequence's rollout.
func (t *Tensors) rollout(sequence int) int {
	if t.Rollout == nil {
		return sequence
	}
	return int(t.Rollout[sequence])
}

// Decode reads a body and refuses one that is not exactly of the form. Nothing it
// returns refers to body, save the mask.
//
// It is the reference reader of the form in Go, written apart from the writer: no command reads a batch.
func Decode(body []byte) (*Tensors, error) {
	h, err := weights.ParseHeader(body, int64(len(body)))
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	t := &Tensors{}
	text, ok := h.Metadata[metadataEntry]
	if !ok {
		return nil, fmt.Errorf("batch: the header has no metadata entry %q, want a lease", metadataEntry)
	}
	if err := json.Unmarshal([]byte(text), &t.Lease); err != nil {
		return nil, fmt.Errorf("batch: the metadata entry %q is no lease: %w", metadataEntry, err)
	}
	raw := make(map[string][]byte, len(dtypes))
	for i := range h.Entries {
		e := &h.Entries[i]
		if err := checkEntry(e); err != nil {
			return nil, err
		}
		raw[e.Name] = body[h.DataStart+e.Begin : h.DataStart+e.End]
	}
	for _, d := range dtypes {
		if _, ok := raw[d.name]; !ok && d.name != rolloutsTensor && d.name != agentsTensor {
			return nil, fmt.Errorf("batch: the tensor %s is missing", d.name)
		}
	}
	t.Tokens, t.Versions, t.Samples = ints(raw["tokens"]), ints(raw["versions"]), ints(raw["samples"])
	t.Offsets, t.Groups = longs(raw["offsets"]), longs(raw["groups"])
	t.Logprobs, t.Advantages, t.Rewards = floats(raw["logprobs"]), floats(raw["advantages"]), floats(raw["rewards"])
	t.LossMask = raw["loss_mask"]
	if rollouts, ok := raw[rolloutsTensor]; ok {
		t.Rollout = ints(rollouts)
	}
	if agents, ok := raw[agentsTensor]; ok {
		t.Agents = ints(agents)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	return t, nil
}

// Check refuses tensors that do not fit one another or must not be trained on.
func (t *Tensors) Check() error {
	for _, check := range []func() error{t.checkShapes, t.checkRollouts, t.checkAgents, t.checkLease, t.checkTokens} { // each relies on those before
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkEntry refuses a tensor that a batch does not have, or of another type.
func checkEntry(e *weights.Entry) error {
	for _, d := range dtypes {
		if e.Name != d.name {
			continue
		}
		if e.DType != d.dtype || len(e.Shape) != 1 {
			return fmt.Errorf("batch: the tensor %s is %s %v, want %s of one dimension", e.Name, e.DType, e.Shape, d.dtype)
		}
		return nil
	}
	return fmt.Errorf("batch: the tensor %q is none of a batch's", e.Name)
}

// checkShapes compares the lengths with one another and with the offsets.
func (t *Tensors) checkShapes() error {
	n, r := len(t.Tokens), len(t.Rewards)
	if len(t.LossMask) != n || len(t.Logprobs) != n || len(t.Versions) != n {
		return fmt.Errorf("batch: %d tokens, %d mask entries, %d log-probs and %d versions: want as many of each", n, len(t.LossMask), len(t.Logprobs), len(t.Versions))
	}
	if len(t.Offsets) != r+1 || len(t.Advantages) != r || len(t.Groups) != r || len(t.Samples) != r {
		return fmt.Errorf("batch: %d rewards, %d advantages, %d groups, %d samples and %d offsets: want as many of each, and one offset more",
			r, len(t.Advantages), len(t.Groups), len(t.Samples), len(t.Offsets))
	}
	if t.Offsets[0] != 0 || t.Offsets[r] != int64(n) {
		return fmt.Errorf("batch: offsets go from %d to %d, want from 0 to the %d tokens", t.Offsets[0], t.Offsets[r], n)
	}
	for i := range r {
		if t.Offsets[i+1] <= t.Offsets[i] {
			return fmt.Errorf("batch: sequence %d ends at offset %d and begins at %d, want at least one token", i, t.Offsets[i+1], t.Offsets[i])
		}
	}
	return nil
}

// checkAgents refuses agents that the lease does not name.
func (t *Tensors) checkAgents() error {
	if (t.Agents == nil) != (len(t.Lease.Agents) == 0) || t.Agents != nil && len(t.Agents) != len(t.Rewards) {
		return fmt.Errorf("batch: %d agents of %d sequences, and %d names: want one each, or nothing of both", len(t.Agents), len(t.Rewards), len(t.Lease.Agents))
	}
	for i, a := range t.Agents {
		if a < -1 || int(a) >= len(t.Lease.Agents) {
			return fmt.Errorf("batch: sequence %d is of agent %d, want -1 to %d", i, a, len(t.Lease.Agents)-1)
		}
	}
	return nil
}

// checkRollouts refuses sequences that are not divided into rollouts, or whose rollout is not one.
func (t *Tensors) checkRollouts() error {
	if t.Rollout == nil {
		return nil
	}
	if len(t.Rollout) != len(t.Rewards) {
		return fmt.Errorf("batch: %d rewards and %d entries in rollouts: want as many of each", len(t.Rewards), len(t.Rollout))
	}
	for i, r := range t.Rollout {
		before := int32(-1)
		if i > 0 {
			before = t.Rollout[i-1]
		}
		switch {
		case r != before && r != before+1:
			return fmt.Errorf("batch: sequence %d is of rollout %d after %d: want rollouts numbered from 0, each one's sequences side by side", i, r, before)
		case r == before && (t.Groups[i] != t.Groups[i-1] || t.Samples[i] != t.Samples[i-1] ||
			math.Float32bits(t.Rewards[i]) != math.Float32bits(t.Rewards[i-1]) || math.Float32bits(t.Advantages[i]) != math.Float32bits(t.Advantages[i-1])):
			return fmt.Errorf("batch: sequence %d is of rollout %d, and its group, sample, reward or advantage is not that of the one before it", i, r)
		}
	}
	return nil
}

// checkLease compares the header's stamps with the tensors.
func (t *Tensors) checkLease() error {
	l, rollouts := &t.Lease, t.Rollouts()
	at, row := 0, 0 // the rollout and the sequence
	for _, stamp := range l.Stamps {
		if stamp.Rollouts < 1 || stamp.Rollouts > rollouts-at {
			return fmt.Errorf("batch: the stamp of group %d counts %d rollouts, but %d are left of %d", stamp.Group, stamp.Rollouts, rollouts-at, rollouts)
		}
		at += stamp.Rollouts
		for ; row < len(t.Groups) && t.rollout(row) < at; row++ {
			if loop.GroupID(t.Groups[row]) != stamp.Group {
				return fmt.Errorf("batch: sequence %d is of group %d, its stamp says %d", row, t.Groups[row], stamp.Group)
			}
		}
		if stamp.StartVersion < 0 || stamp.StartVersion > stamp.ReadyVersion || stamp.ReadyVersion > l.Version {
			return fmt.Errorf("batch: group %d started under version %d and was ready at %d, and the step starts from %d: want 0 ≤ start ≤ ready ≤ step",
				stamp.Group, stamp.StartVersion, stamp.ReadyVersion, l.Version)
		}
	}
	if at != rollouts {
		return fmt.Errorf("batch: stamps for %d rollouts, but %d are there", at, rollouts)
	}
	if l.Tokens < len(t.Tokens) || l.Rollouts < rollouts || l.Groups < len(l.Stamps) {
		return fmt.Errorf("batch: a share of %d tokens, %d rollouts and %d groups, want at most the batch's %d, %d and %d",
			len(t.Tokens), rollouts, len(l.Stamps), l.Tokens, l.Rollouts, l.Groups)
	}
	if l.WorldSize < 1 || l.Rank < 0 || l.Rank >= l.WorldSize {
		return fmt.Errorf("batch: rank %d of %d, want from 0 to one less", l.Rank, l.WorldSize)
	}
	return nil
}

// checkTokens refuses values that must not be trained on.
func (t *Tensors) checkTokens() error {
	for i := range t.Rewards {
		if !finite(t.Rewards[i]) || !finite(t.Advantages[i]) {
			return fmt.Errorf("batch: sequence %d has the reward %g and the advantage %g, want finite numbers", i, t.Rewards[i], t.Advantages[i])
		}
	}
	for i := range t.Tokens {
		m, p, v := t.LossMask[i], t.Logprobs[i], loop.Version(t.Versions[i])
		switch {
		case t.Tokens[i] < 0 || m > 1:
			return fmt.Errorf("batch: token %d has the id %d and the mask %d, want an id from 0 and a mask of 0 or 1", i, t.Tokens[i], m)
		case m == 0 && (v != loop.NoVersion || math.Float32bits(p) != 0):
			return fmt.Errorf("batch: token %d has the log-prob %g of version %d, but the policy did not sample it: want 0 and %d", i, p, v, loop.NoVersion)
		case m == 1 && (v < 0 || v > t.Lease.Version):
			return fmt.Errorf("batch: token %d was sampled by version %d, want from 0 to %d, which the step starts from", i, v, t.Lease.Version)
		case m == 1 && !(p <= logprobMax && p >= -math.MaxFloat32):
			return fmt.Errorf("batch: token %d has the log-prob %g, want a finite number of at most 0", i, p)
		}
	}
	return nil
}

func ints(raw []byte) []int32 {
	out := make([]int32, len(raw)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func longs(raw []byte) []int64 {
	out := make([]int64, len(raw)/8)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return out
}

func floats(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}
