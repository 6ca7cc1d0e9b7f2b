package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// GroupStamp is a group's part in the definition of staleness.
type GroupStamp struct {
	Group int64 `json:"group"`
	// StartVersion and ReadyVersion are the versions of its first token and when it was whole.
	StartVersion int64 `json:"start_version"`
	ReadyVersion int64 `json:"ready_version"`
	Rollouts     int   `json:"rollouts"`
}

// Metadata is what the header of a batch says: of the whole batch, over all ranks.
type Metadata struct {
	// Lease names the lease, 0 for validation. Attempt counts how often the batch has been given out.
	Lease   int64 `json:"lease"`
	Attempt int64 `json:"attempt"`
	// Kind is train or validation.
	Kind string `json:"kind"`
	// Version is the one that the step starts from.
	Version int64 `json:"version"`
	// DeadlineS is how long the lease lasts without a word, in seconds.
	DeadlineS     float64      `json:"deadline_s"`
	Rank          int          `json:"rank"`
	WorldSize     int          `json:"world_size"`
	Tokens        int          `json:"tokens"`
	Response      int          `json:"response_tokens"`
	Rollouts      int          `json:"rollouts"`
	Groups        int          `json:"groups"`
	StalenessMean float64      `json:"staleness_mean"`
	StalenessMax  int64        `json:"staleness_max"`
	Stamps        []GroupStamp `json:"stamps"`
}

// Batch is whole groups to train on. Entry i of every list about tokens is about token i itself.
type Batch struct {
	Metadata
	// Tokens, Mask, Logprobs and Versions have one entry a token; Offsets divide them into sequences.
	Tokens   []int32
	Offsets  []int64
	Mask     []uint8
	Logprobs []float32
	Versions []int32
	// Advantages, Rewards, Groups and Samples have one entry a sequence.
	Advantages []float32
	Rewards    []float32
	Groups     []int64
	Samples    []int32
	// ForwardVersion and StepVersion are of the weights that the forward pass used and that the step changed; -1
	// unstamped.
	ForwardVersion, StepVersion int64

	transport *Transport
	trainer   string
	renewal   *renewal
	held      int64
	done      bool
	// references are to the groups, of a batch that was leased by reference.
	references []reference
}

// StampForward says that the forward pass runs now, with the weights that the trainer holds.
func (b *Batch) StampForward() { b.ForwardVersion = b.held }

// StampStep says that the optimizer steps now. A publish does it where it was not done.
func (b *Batch) StampStep() { b.StepVersion = b.held }

// Lost reports that the server has said that the lease is lost.
func (b *Batch) Lost() bool { return b.renewal != nil && b.renewal.lost.isSet() }

// Part fetches the bytes of a side channel or a medium: kind is "channels" or "media".
func (b *Batch) Part(ctx context.Context, kind, name string) ([]byte, error) {
	if b.transport == nil {
		return nil, refuse(Invalid, "%s are fetched within a lease, and this batch has none", kind)
	}
	message := map[string]any{"trainer": b.trainer, "attempt": b.Attempt, "rank": b.Rank, "world_size": b.WorldSize}
	found, err := b.transport.do(ctx, call{method: "POST", path: fmt.Sprintf("/api/v1/batches/%d/%s/%s", b.Lease, kind, name), message: message})
	if err != nil {
		return nil, err
	}
	return found.body, nil
}

// required are the keys that a header must have.
var required = []string{
	"lease", "attempt", "kind", "version", "deadline_s", "rank", "world_size", "tokens", "response_tokens", "rollouts",
	"groups", "staleness_mean", "staleness_max",
}

// parse reads the body of a batch. A batch that cannot be trained on is Invalid.
func parse(body []byte) (*Batch, error) {
	tensors, metadata, err := decode(body, "the batch")
	if err != nil {
		return nil, err
	}
	b := &Batch{ForwardVersion: -1, StepVersion: -1, held: -1}
	var said map[string]json.RawMessage
	text := []byte(metadata["headway"])
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, refuse(Invalid, "the batch's header says nothing of its lease that can be read: %v", err)
	}
	for _, key := range required {
		if _, found := said[key]; !found {
			return nil, refuse(Invalid, "the batch's header does not say %s", key)
		}
	}
	if err := json.Unmarshal(text, &b.Metadata); err != nil {
		return nil, refuse(Invalid, "the batch's header says nothing of its lease that can be read: %v", err)
	}
	byName := map[string]Tensor{}
	for _, tensor := range tensors {
		byName[tensor.Name] = tensor
	}
	for _, one := range []struct {
		name, kind string
		into       any
	}{
		{"tokens", "I32", &b.Tokens}, {"offsets", "I64", &b.Offsets}, {"loss_mask", "U8", &b.Mask},
		{"logprobs", "F32", &b.Logprobs}, {"versions", "I32", &b.Versions}, {"advantages", "F32", &b.Advantages},
		{"rewards", "F32", &b.Rewards}, {"groups", "I64", &b.Groups}, {"samples", "I32", &b.Samples},
	} {
		tensor, found := byName[one.name]
		if !found || tensor.Type != one.kind || len(tensor.Shape) != 1 {
			return nil, refuse(Invalid, "the batch's %s is %s of shape %v; want %s of one dimension", one.name, tensor.Type, tensor.Shape, one.kind)
		}
		if err := numbers(tensor, one.into); err != nil {
			return nil, err
		}
	}
	return b, b.check()
}

// numbers decodes a tensor of one dimension.
func numbers(tensor Tensor, into any) error {
	count := tensor.Shape[0]
	switch list := into.(type) {
	case *[]int32:
		*list = make([]int32, count)
	case *[]int64:
		*list = make([]int64, count)
	case *[]uint8:
		*list = make([]uint8, count)
	case *[]float32:
		*list = make([]float32, count)
	}
	if err := binary.Read(bytes.NewReader(tensor.Data), binary.LittleEndian, into); err != nil && count > 0 {
		return refuse(Invalid, "the batch's %s cannot be read: %v", tensor.Name, err)
	}
	return nil
}

// check refuses a batch whose shapes, ids, numbers or versions cannot be.
func (b *Batch) check() error {
	tokens, sequences := len(b.Tokens), len(b.Rewards)
	for _, one := range []struct {
		name      string
		have, any int
	}{
		{"loss_mask", len(b.Mask), tokens}, {"logprobs", len(b.Logprobs), tokens}, {"versions", len(b.Versions), tokens},
		{"offsets", len(b.Offsets), sequences + 1}, {"advantages", len(b.Advantages), sequences},
		{"groups", len(b.Groups), sequences}, {"samples", len(b.Samples), sequences},
	} {
		if one.have != one.any {
			return refuse(Invalid, "the batch's %s has %d entries, want %d", one.name, one.have, one.any)
		}
	}
	if b.Offsets[0] != 0 || b.Offsets[sequences] != int64(tokens) {
		return refuse(Invalid, "the batch's offsets do not divide its %d tokens", tokens)
	}
	for r := range sequences {
		if b.Offsets[r+1] <= b.Offsets[r] || b.Offsets[r+1] > int64(tokens) {
			return refuse(Invalid, "the batch's offsets do not divide its %d tokens into sequences of at least one", tokens)
		}
		if !finite(b.Advantages[r]) || !finite(b.Rewards[r]) {
			return refuse(Invalid, "sequence %d has advantages or rewards that are not finite", r)
		}
	}
	for i := range tokens {
		if what := b.wrong(i); what != "" {
			return refuse(Invalid, "token %d: %s", i, what)
		}
	}
	return nil
}

// wrong says what cannot be of a token, "" for nothing.
func (b *Batch) wrong(i int) string {
	sampled := b.Mask[i] == 1
	var found []string
	for _, one := range []struct {
		wrong bool
		what  string
	}{
		{b.Mask[i] > 1, "a loss mask that is neither 0 nor 1"},
		{b.Tokens[i] < 0, "a negative id"},
		{!finite(b.Logprobs[i]), "a log-prob that is not finite"},
		{b.Logprobs[i] > 1e-3, "a log-prob above 0"},
		{sampled && b.Versions[i] < 0, "no version, and the policy sampled it"},
		{sampled && int64(b.Versions[i]) > b.Version, "a version from the future"},
	} {
		if one.wrong {
			found = append(found, one.what)
		}
	}
	return strings.Join(found, "; ")
}

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }
