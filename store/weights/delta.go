package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Encoding is how a delta says what changed.
type Encoding string

const (
	// Overwrite says the new values of the elements that changed. Applying it twice gives
	// the same.
	Overwrite Encoding = "overwrite"
	// XOR says the bits that changed. Applying it twice is refused.
	XOR Encoding = "xor"
)

// DeltaName is the file that a delta comes in.
const DeltaName = "delta.safetensors"

// The delta's safetensors metadata: its format, and what it changes as JSON.
const (
	deltaFormatKey = "format"
	deltaFormat    = "headway-delta-1"
	deltaKey       = "delta"
)

// Delta is what a delta file says. Its payloads are U8 tensors of the same file. For the i-th of
// Tensors they are "i.gap" and "i.value", "i.xor" or "i.whole". For the i-th of Files they are
// "header.i" or "file.i".
type Delta struct {
	// Version is what applying it to BaseVersion gives.
	Version     loop.Version `json:"version"`
	BaseVersion loop.Version `json:"base_version"`
	Encoding    Encoding     `json:"encoding"`
	// Files are all files that it gives.
	Files []DeltaFile `json:"files"`
	// Tensors are those that change; the others are the base's.
	Tensors []DeltaTensor `json:"tensors"`

	content io.ReadSeeker
	header  Header
	payload map[string]int
}

// DeltaFile is a file that a delta gives.
type DeltaFile struct {
	File
	// From says where it comes from: FromTensors, FromBase or FromDelta.
	From string `json:"from"`
}

// Where a file comes from.
const (
	// FromTensors: a header, "header.i" or else that of the base's file of that name, and
	// the tensors it lists, changed or the base's.
	FromTensors = "tensors"
	// FromBase: the base's file of that name.
	FromBase = "base"
	// FromDelta: "file.i".
	FromDelta = "delta"
)

// DeltaTensor is a tensor that a delta changes.
type DeltaTensor struct {
	Name string `json:"name"`
	// BaseHash is of the base's bytes, "" for a tensor that is new; Hash of the result's.
	BaseHash string `json:"base_hash,omitempty"`
	Hash     string `json:"hash"`
	// How is HowSparse, HowXOR or HowWhole.
	How string `json:"how"`
	// Codec is CodecRaw or CodecZstd, of each payload.
	Codec string `json:"codec"`
	// Changed is the number of elements of HowSparse, GapBytes the size of each of their
	// gaps: 1, 2, 4 or 8.
	Changed  int64 `json:"changed,omitempty"`
	GapBytes int   `json:"gap_bytes,omitempty"`
}

// How a tensor is said.
const (
	// HowSparse: "i.gap" has, for every element that changes, how far it is from the one before, the
	// first from element 0, as little-endian integers. "i.value" has the new values. An element of a
	// type of less than a byte is a byte.
	HowSparse = "sparse"
	// HowXOR: "i.xor" has the base's bytes xor the result's.
	HowXOR = "xor"
	// HowWhole: "i.whole" has the result's bytes.
	HowWhole = "whole"
	// CodecRaw: a payload as it is.
	CodecRaw = "raw"
	// CodecZstd: a payload in one Zstandard frame or several.
	CodecZstd = "zstd"
)

var (
	// ErrBase is what applying a delta answers to a base that is not the one it was made from.
	ErrBase = errors.New("the delta was made from another base")
	// ErrApplied is what applying an XOR delta answers where it has been applied already.
	ErrApplied = errors.New("the delta has been applied already")
)

// ParseDelta reads the header of a delta file of size bytes; the payloads are read by
// Apply. It refuses what could not be applied to any base.
func ParseDelta(content io.ReadSeeker, size int64) (*Delta, error) {
	h, err := readHeader(content, size)
	if err != nil {
		return nil, fmt.Errorf("weights: delta: %w", err)
	}
	if found := h.Metadata[deltaFormatKey]; found != deltaFormat {
		return nil, fmt.Errorf("weights: delta: format %q in its metadata, want %q", found, deltaFormat)
	}
	d := &Delta{content: content, header: h, payload: make(map[string]int, len(h.Entries))}
	if err := json.Unmarshal([]byte(h.Metadata[deltaKey]), d); err != nil {
		return nil, fmt.Errorf("weights: delta: %q in its metadata is not the JSON of a delta: %w", deltaKey, err)
	}
	for i, e := range h.Entries {
		if e.DType != "U8" || len(e.Shape) != 1 {
			return nil, fmt.Errorf("weights: delta: payload %q is %s %v, want U8 of one dimension", e.Name, e.DType, e.Shape)
		}
		d.payload[e.Name] = i
	}
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("weights: delta from version %d to %d: %w", d.BaseVersion, d.Version, err)
	}
	return d, nil
}

// readHeader reads the header at the beginning of a safetensors file.
func readHeader(content io.ReadSeeker, size int64) (Header, error) {
	raw, err := readRawHeader(content, size)
	if err != nil {
		return Header{}, err
	}
	return ParseHeader(raw, size)
}

// readRawHeader reads the bytes of a header, its length in front.
func readRawHeader(content io.ReadSeeker, size int64) ([]byte, error) {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	head := make([]byte, min(lengthBytes, max(size, 0)))
	if _, err := io.ReadFull(content, head); err != nil {
		return nil, err
	}
	length, err := headerLength(head, size)
	if err != nil {
		return nil, err
	}
	head = append(head, make([]byte, length)...)
	_, err = io.ReadFull(content, head[lengthBytes:])
	return head, err
}

// check refuses a delta that contradicts itself.
func (d *Delta) check() error {
	if d.Encoding != Overwrite && d.Encoding != XOR {
		return fmt.Errorf("encoding %q, want %s or %s", d.Encoding, Overwrite, XOR)
	}
	if d.BaseVersion < 0 || d.Version <= d.BaseVersion {
		return errors.New("want a version after its base")
	}
	used, names := 0, map[string]struct{}{}
	for i, f := range d.Files {
		n, err := d.checkFile(i, f)
		if err != nil {
			return err
		}
		if _, twice := names[f.Name]; twice {
			return fmt.Errorf("the file %q occurs twice, want each once", f.Name)
		}
		names[f.Name] = struct{}{}
		used += n
	}
	clear(names)
	for i := range d.Tensors {
		t := &d.Tensors[i]
		if _, twice := names[t.Name]; twice {
			return fmt.Errorf("tensor %q occurs twice, want each once", t.Name)
		}
		names[t.Name] = struct{}{}
		if err := d.checkTensor(i, t); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		used += len(t.payloads(i))
	}
	if used != len(d.header.Entries) {
		return fmt.Errorf("%d payloads, want the %d that its files and tensors have", len(d.header.Entries), used)
	}
	return nil
}

// checkFile checks a file, and says how many payloads it has.
func (d *Delta) checkFile(i int, f DeltaFile) (int, error) {
	if err := checkName(f.Name); err != nil {
		return 0, err
	}
	if f.Size < 0 || !isHash(f.Hash) {
		return 0, fmt.Errorf("%s has %d bytes and hash %.80q, want a size and \"sha256:\" with 64 hexadecimal digits", f.Name, f.Size, f.Hash)
	}
	_, header := d.payload[fmt.Sprintf("header.%d", i)]
	_, whole := d.payload[fmt.Sprintf("file.%d", i)]
	switch {
	case f.From == FromBase && !header && !whole:
		return 0, nil
	case f.From == FromDelta && !header && whole:
		return 1, nil
	case f.From == FromTensors && !whole && isTensors(f.Name):
		if header {
			return 1, nil
		}
		return 0, nil
	}
	return 0, fmt.Errorf("%s is from %q with header %v and file %v, want %s with neither, %s with a file, or %s for tensors",
		f.Name, f.From, header, whole, FromBase, FromDelta, FromTensors)
}

// payloads names the payloads of the i-th tensor.
func (t *DeltaTensor) payloads(i int) []string {
	switch t.How {
	case HowSparse:
		return []string{fmt.Sprintf("%d.gap", i), fmt.Sprintf("%d.value", i)}
	case HowXOR:
		return []string{fmt.Sprintf("%d.xor", i)}
	}
	return []string{fmt.Sprintf("%d.whole", i)}
}

func (d *Delta) checkTensor(i int, t *DeltaTensor) error {
	allowed := []string{HowWhole, HowSparse}
	if d.Encoding == XOR {
		allowed[1] = HowXOR
	}
	switch {
	case !slices.Contains(allowed, t.How):
		return fmt.Errorf("said as %q, want one of %q under %s", t.How, allowed, d.Encoding)
	case t.Codec != CodecRaw && t.Codec != CodecZstd:
		return fmt.Errorf("codec %q, want %s or %s", t.Codec, CodecRaw, CodecZstd)
	case !isHash(t.Hash) || t.BaseHash != "" && !isHash(t.BaseHash):
		return fmt.Errorf("hashes %.80q and %.80q, want \"sha256:\" with 64 hexadecimal digits", t.BaseHash, t.Hash)
	case t.BaseHash == "" && t.How != HowWhole:
		return fmt.Errorf("no base_hash, want one for what is said as %s", t.How)
	case t.How == HowSparse && (t.Changed < 1 || !slices.Contains([]int{1, 2, 4, 8}, t.GapBytes)):
		return fmt.Errorf("%d elements with gaps of %d bytes, want at least one, and 1, 2, 4 or 8", t.Changed, t.GapBytes)
	}
	for _, name := range t.payloads(i) {
		if _, ok := d.payload[name]; !ok {
			return fmt.Errorf("no payload %q", name)
		}
	}
	return nil
}

// unit is the size in bytes of what is said at once of a type.
func unit(d DType) int { return int(max(elementBits[d]/8, 1)) }
