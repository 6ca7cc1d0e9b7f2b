package checker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// leaseWord is what the header of a batch says of it.
type leaseWord struct {
	Lease          int64      `json:"lease"`
	Attempt        int64      `json:"attempt"`
	Kind           string     `json:"kind"`
	Version        int64      `json:"version"`
	DeadlineS      float64    `json:"deadline_s"`
	Rank           int        `json:"rank"`
	WorldSize      int        `json:"world_size"`
	Tokens         int        `json:"tokens"`
	ResponseTokens int        `json:"response_tokens"`
	Rollouts       int        `json:"rollouts"`
	Groups         int        `json:"groups"`
	StalenessMean  float64    `json:"staleness_mean"`
	StalenessMax   int64      `json:"staleness_max"`
	Stamps         []stamp    `json:"stamps"`
	Channels       []rowsSaid `json:"channels"`
}

// rowsSaid is what a lease says of a side channel.
type rowsSaid struct {
	Name   string `json:"name"`
	Rows   int    `json:"rows"`
	Absent int    `json:"absent"`
}

type stamp struct {
	Group    int64 `json:"group"`
	Start    int64 `json:"start_version"`
	Ready    int64 `json:"ready_version"`
	Rollouts int   `json:"rollouts"`
}

// body is a share of a batch: sequences, packed one after the other.
type body struct {
	lease               leaseWord
	tokens, versions    []int32
	mask                []byte
	logprobs            []float32
	offsets, groups     []int64
	advantages, rewards []float32
	samples             []int32
	rollouts            []int32 // nil where each rollout is one sequence
	// data are the bytes of all tensors.
	data []byte
}

// readBody reads a file of safetensors with the tensors of a batch.
func readBody(raw []byte) (*body, error) {
	if len(raw) < 8 {
		return nil, fmt.Errorf("%d bytes", len(raw))
	}
	length := binary.LittleEndian.Uint64(raw)
	if length > uint64(len(raw)-8) {
		return nil, fmt.Errorf("a header of %d bytes in a body of %d", length, len(raw))
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+length], &header); err != nil {
		return nil, err
	}
	b := &body{data: raw[8+length:]}
	var metadata struct {
		Headway string `json:"headway"`
	}
	if err := json.Unmarshal(header["__metadata__"], &metadata); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(metadata.Headway), &b.lease); err != nil {
		return nil, err
	}
	delete(header, "__metadata__")
	end := 0
	for _, name := range slices.Sorted(maps.Keys(header)) {
		n, err := b.tensor(name, header[name])
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		end = max(end, n)
	}
	if end != len(b.data) {
		return nil, fmt.Errorf("tensors of %d bytes in %d", end, len(b.data))
	}
	return b, b.shape()
}

// tensor reads one, and returns where it ends.
func (b *body) tensor(name string, entry []byte) (int, error) {
	var word struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(entry, &word); err != nil {
		return 0, err
	}
	from, to := word.Offsets[0], word.Offsets[1]
	if from < 0 || to < from || to > len(b.data) {
		return 0, fmt.Errorf("bytes %d to %d of %d", from, to, len(b.data))
	}
	data := b.data[from:to]
	size := map[string]int{"I64": 8, "I32": 4, "F32": 4, "U8": 1}[word.DType]
	if len(word.Shape) != 1 || size == 0 || word.Shape[0]*size != len(data) {
		return 0, fmt.Errorf("%s of shape %v in %d bytes", word.DType, word.Shape, len(data))
	}
	switch name + " " + word.DType {
	case "tokens I32":
		b.tokens = numbers[int32](data)
	case "versions I32":
		b.versions = numbers[int32](data)
	case "samples I32":
		b.samples = numbers[int32](data)
	case "rollouts I32":
		b.rollouts = numbers[int32](data)
	case "logprobs F32":
		b.logprobs = numbers[float32](data)
	case "advantages F32":
		b.advantages = numbers[float32](data)
	case "rewards F32":
		b.rewards = numbers[float32](data)
	case "offsets I64":
		b.offsets = numbers[int64](data)
	case "groups I64":
		b.groups = numbers[int64](data)
	case "loss_mask U8":
		b.mask = data
	case "agents I32":
	default:
		return 0, errors.New("unknown, or of another type: " + word.DType)
	}
	return to, nil
}

// shape reports tensors whose lengths do not fit each other.
func (b *body) shape() error {
	n, r := len(b.tokens), len(b.groups)
	if len(b.versions) != n || len(b.mask) != n || len(b.logprobs) != n {
		return fmt.Errorf("%d tokens, %d versions, %d of the mask, %d log-probs", n, len(b.versions), len(b.mask), len(b.logprobs))
	}
	if len(b.offsets) != r+1 || len(b.advantages) != r || len(b.rewards) != r || len(b.samples) != r || b.rollouts != nil && len(b.rollouts) != r {
		return fmt.Errorf("%d sequences, %d offsets, %d advantages, %d rewards, %d samples", r, len(b.offsets), len(b.advantages), len(b.rewards), len(b.samples))
	}
	at := int64(0)
	for i, o := range b.offsets {
		if i == 0 && o != 0 || o < at || o > int64(n) || i == r && o != int64(n) {
			return fmt.Errorf("offsets %v of %d tokens", b.offsets, n)
		}
		at = o
	}
	return nil
}

// numbers are the little-endian ones of some bytes.
func numbers[T int32 | int64 | float32](data []byte) []T {
	out := make([]T, len(data)/binary.Size(T(0)))
	_, _ = binary.Decode(data, binary.LittleEndian, out)
	return out
}
