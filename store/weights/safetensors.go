package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	// HeaderBytesMax is the longest JSON header that is read or written, as in the format.
	HeaderBytesMax = 100_000_000
	// lengthBytes is the size of the header's length in front of it.
	lengthBytes = 8
	// metadataName is the one name in a header that is not a tensor's.
	metadataName = "__metadata__"
)

// Entry is one tensor's place in a safetensors file.
type Entry struct {
	// Name is unique in its file.
	Name string
	// DType is the type of the elements.
	DType DType
	// Shape has the dimensions, the slowest first; empty for a scalar.
	Shape []int
	// Begin and End are the tensor's first byte and the one after its last, from the
	// start of the data.
	Begin, End int64
}

// Header is the header of a safetensors file.
type Header struct {
	// Entries are the tensors in the order of their data. They cover it: the first
	// begins at 0, each next where the last ended.
	Entries []Entry
	// Metadata is free text by name; nil if there is none.
	Metadata map[string]string
	// DataStart is where the data begins in the file, in bytes.
	DataStart int64
}

// AppendHeader appends the header of a file with these tensors, one after the
// other, and sets their Begin and End. The data that follows is aligned to 8 bytes
// of the file if dst was empty.
func AppendHeader(dst []byte, entries []Entry) ([]byte, error) {
	start, offset := len(dst), int64(0)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0, '{')
	for i := range entries {
		e := &entries[i]
		size, err := tensorBytes(e.DType, e.Shape)
		switch {
		case err != nil:
			return nil, fmt.Errorf("weights: tensor %q: %w", e.Name, err)
		case e.Name == "" || e.Name == metadataName || !utf8.ValidString(e.Name):
			return nil, fmt.Errorf("weights: a tensor cannot be called %q: want UTF-8 that is neither empty nor %s", e.Name, metadataName)
		}
		e.Begin, e.End = offset, offset+size
		if offset = e.End; offset < e.Begin {
			return nil, fmt.Errorf("weights: tensor %q makes the file longer than can be addressed", e.Name)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendEntry(dst, e)
	}
	dst = append(dst, '}')
	for (len(dst)-start)%8 != 0 {
		dst = append(dst, ' ')
	}
	length := len(dst) - start - lengthBytes
	if length > HeaderBytesMax {
		return nil, fmt.Errorf("weights: a header of %d bytes for %d tensors, want at most %d", length, len(entries), HeaderBytesMax)
	}
	binary.LittleEndian.PutUint64(dst[start:], uint64(length))
	return dst, nil
}

func appendEntry(dst []byte, e *Entry) []byte {
	dst = appendString(dst, e.Name)
	dst = append(dst, `:{"dtype":`...)
	dst = appendString(dst, string(e.DType))
	dst = append(dst, `,"shape":`...)
	dst = appendShape(dst, e.Shape)
	dst = append(dst, `,"data_offsets":[`...)
	dst = strconv.AppendInt(dst, e.Begin, 10)
	dst = append(dst, ',')
	dst = strconv.AppendInt(dst, e.End, 10)
	return append(dst, "]}"...)
}

func appendShape(dst []byte, shape []int) []byte {
	dst = append(dst, '[')
	for i, n := range shape {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, ']')
}

// appendString appends a JSON string.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			text, _ := json.Marshal(s) // a string always marshals
			return append(dst, text...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// ParseHeader reads the header of a safetensors file of fileBytes bytes that begins
// with head; head must hold the whole header and may hold more. It refuses all that is not exactly
// the format. Examples are unknown types, sizes that contradict shapes, and names that occur twice.
// Others are tensors that overlap, leave gaps, or do not end where the file does.
func ParseHeader(head []byte, fileBytes int64) (Header, error) {
	return parseWhole(head, fileBytes, math.MaxInt)
}

// parseWhole is ParseHeader of so many names at most. A negative size is of a file whose end is not known yet:
// where it ends is not looked at.
func parseWhole(head []byte, fileBytes int64, names int) (Header, error) {
	size := fileBytes
	if size < 0 {
		size = math.MaxInt64
	}
	h, err := parseHeader(head, size, names)
	if err != nil {
		return Header{}, err
	}
	if fileBytes >= 0 {
		return h, h.cover(fileBytes - h.DataStart)
	}
	end := int64(0)
	for i := range h.Entries {
		end = max(end, h.Entries[i].End)
	}
	return h, h.cover(end)
}

func parseHeader(head []byte, fileBytes int64, names int) (Header, error) {
	length, err := headerLength(head, fileBytes)
	if err != nil {
		return Header{}, err
	}
	if int64(len(head)) < lengthBytes+length {
		return Header{}, fmt.Errorf("header of %d bytes, but only %d of them at hand", length, max(0, len(head)-lengthBytes))
	}
	text := head[lengthBytes : lengthBytes+length]
	if text[0] != '{' {
		return Header{}, fmt.Errorf("header begins with %q, want '{'", text[0])
	}
	if !utf8.Valid(text) || !json.Valid(text) {
		return Header{}, errors.New("header is not JSON in UTF-8")
	}
	h := Header{DataStart: lengthBytes + length}
	return h, h.parse(text, names)
}

// headerLength reads and bounds the length in front of the header.
func headerLength(head []byte, fileBytes int64) (int64, error) {
	if fileBytes < lengthBytes || len(head) < lengthBytes {
		return 0, fmt.Errorf("%d bytes, want at least %d for the header's length", min(fileBytes, int64(len(head))), lengthBytes)
	}
	length := binary.LittleEndian.Uint64(head)
	if length > HeaderBytesMax {
		return 0, fmt.Errorf("header of %d bytes, want at most %d", length, HeaderBytesMax)
	}
	if room := uint64(fileBytes - lengthBytes); length > room || length < 2 {
		return 0, fmt.Errorf("header of %d bytes, want from 2 to the %d bytes after its length", length, room)
	}
	return int64(length), nil
}

// parse reads the members of a header that is known to be valid JSON. It walks
// them itself, because decoding into a map would take the last of equal names. It refuses more tensors and
// metadata than names before it keeps them.
func (h *Header) parse(text []byte, names int) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil { // the brace
		return err
	}
	seen := make(map[string]struct{})
	for decoder.More() {
		name, err := memberName(decoder, seen)
		if err != nil {
			return fmt.Errorf("header: %w", err)
		}
		if name == metadataName {
			if err := h.parseMetadata(decoder, names); err != nil {
				return fmt.Errorf("header: %s: %w", metadataName, err)
			}
			continue
		}
		if len(h.Entries) == names {
			return fmt.Errorf("header of more than %d tensors, want at most that", names)
		}
		e, err := parseEntry(decoder)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		e.Name = name
		h.Entries = append(h.Entries, e)
	}
	return nil
}

// memberName reads an object's next key and refuses one that was there before.
func memberName(decoder *json.Decoder, seen map[string]struct{}) (string, error) {
	token, err := decoder.Token()
	if err != nil {
		return "", err
	}
	name, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("found %v, want a name", token)
	}
	if _, twice := seen[name]; twice {
		return "", fmt.Errorf("the name %q occurs twice, want each once", name)
	}
	seen[name] = struct{}{}
	return name, nil
}

// openObject reads the brace of an object.
func openObject(decoder *json.Decoder) error {
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	if token != json.Delim('{') {
		return fmt.Errorf("found %v, want an object", token)
	}
	return nil
}

func (h *Header) parseMetadata(decoder *json.Decoder, names int) error {
	if err := openObject(decoder); err != nil {
		return err
	}
	h.Metadata = make(map[string]string)
	seen := make(map[string]struct{})
	for decoder.More() {
		name, err := memberName(decoder, seen)
		if err != nil {
			return err
		}
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		if len(h.Metadata) == names {
			return fmt.Errorf("more than %d names, want at most that", names)
		}
		value, ok := token.(string)
		if !ok {
			return fmt.Errorf("%q is %v, want a string", name, token)
		}
		h.Metadata[name] = value
	}
	_, err := decoder.Token() // the closing brace
	return err
}

// numbersBytesMax bounds the text of a shape and of offsets.
const numbersBytesMax = 4096

// decodeShort reads a list of numbers. A long one is refused before it is decoded, which takes several times its text.
func decodeShort[N int | int64](decoder *json.Decoder, into *[]N) error {
	var text json.RawMessage
	if err := decoder.Decode(&text); err != nil {
		return err
	}
	if len(text) > numbersBytesMax {
		return fmt.Errorf("%d bytes of text, want at most %d", len(text), numbersBytesMax)
	}
	return json.Unmarshal(text, into)
}

func parseEntry(decoder *json.Decoder) (Entry, error) {
	var e Entry
	if err := openObject(decoder); err != nil {
		return e, err
	}
	var dtype *DType
	var offsets []int64
	seen := make(map[string]struct{}, 3)
	for decoder.More() {
		key, err := memberName(decoder, seen)
		if err != nil {
			return e, err
		}
		switch key {
		case "dtype":
			err = decoder.Decode(&dtype)
		case "shape":
			err = decodeShort(decoder, &e.Shape)
		case "data_offsets":
			err = decodeShort(decoder, &offsets)
		default:
			return e, fmt.Errorf("has %q, want only dtype, shape and data_offsets", key)
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", key, err)
		}
	}
	if _, err := decoder.Token(); err != nil { // the closing brace
		return e, err
	}
	if dtype == nil || e.Shape == nil || len(offsets) != 2 {
		return e, errors.New("wants a dtype, a shape and two data_offsets")
	}
	e.DType, e.Begin, e.End = *dtype, offsets[0], offsets[1]
	size, err := tensorBytes(e.DType, e.Shape)
	if err != nil {
		return e, err
	}
	if e.Begin < 0 || e.End < e.Begin || e.End-e.Begin != size {
		return e, fmt.Errorf("data_offsets %v hold %d bytes, want the %d of %s %v", offsets, e.End-e.Begin, size, e.DType, e.Shape)
	}
	return e, nil
}

// cover puts the entries in the order of their data and checks that they own
// every one of its bytes once.
func (h *Header) cover(dataBytes int64) error {
	slices.SortStableFunc(h.Entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	end := int64(0)
	for i := range h.Entries {
		e := &h.Entries[i]
		if e.Begin != end {
			kind := "leaves a gap after"
			if e.Begin < end {
				kind = "overlaps"
			}
			return fmt.Errorf("tensor %q begins at byte %d of the data and %s what ends at %d", e.Name, e.Begin, kind, end)
		}
		end = e.End
	}
	if end != dataBytes {
		return fmt.Errorf("tensors end at byte %d of the data, but the file has %d bytes of it", end, dataBytes)
	}
	return nil
}
