package channel

import (
	"fmt"
	"slices"
	"strings"
)

// DType is the type of a value, little-endian in a blob.
type DType string

// The types of values.
const (
	U8   DType = "u8"
	U16  DType = "u16"
	I8   DType = "i8"
	I16  DType = "i16"
	I32  DType = "i32"
	I64  DType = "i64"
	F16  DType = "f16"
	BF16 DType = "bf16"
	F32  DType = "f32"
)

// Bytes is the size of a value; 0 for a type that is none.
func (d DType) Bytes() int {
	switch d {
	case U8, I8:
		return 1
	case U16, I16, F16, BF16:
		return 2
	case I32, F32:
		return 4
	case I64:
		return 8
	}
	return 0
}

// Align says for what a channel has a row.
type Align string

const (
	// Passes: one row for the pass of every token but the last. Row i is of the pass of token i, which
	// samples token i+1. A sequence of n tokens has n-1 rows, because the last token has no pass.
	Passes Align = "passes"
	// Sampled: one row for every token that the policy sampled.
	Sampled Align = "sampled"
	// Tokens: one row for every token.
	Tokens Align = "tokens"
)

// Names of channels that have a meaning here. A name of a user's own begins with "x-".
const (
	// RoutedExperts are the experts that each layer of a pass was routed to: rows of layers × top-k, aligned to passes.
	RoutedExperts = "routed_experts"
	// SamplingMask are the ids of the tokens that the truncated distribution kept: ragged, aligned to sampled tokens.
	SamplingMask = "sampling_mask"
	// TeacherIDs and TeacherLogprobs are what a teacher says of a token: rows of k+1, aligned to sampled tokens. The
	// first value is of the sampled token itself. Those of the teacher's k likeliest tokens follow, the likeliest first,
	// and the sampled token may be among them again. With k 0 a row is one value.
	TeacherIDs      = "teacher_ids"
	TeacherLogprobs = "teacher_logprobs"
	// ReferenceLogprobs are log-probs of the tokens themselves by another model: scalars, aligned to sampled tokens.
	ReferenceLogprobs = "ref_logprobs"
)

// Header is the form of a channel.
type Header struct {
	Name  string `json:"name"`
	DType DType  `json:"dtype"`
	// Row is the shape of a row; empty for one value.
	Row []int `json:"row,omitempty"`
	// Ragged: every row has a length of its own, and Row is empty.
	Ragged bool  `json:"ragged,omitempty"`
	Align  Align `json:"align"`
}

// rowValuesMax bounds the values of a row: 256 layers of 2,048 ids.
const rowValuesMax = 1 << 20

// RowBytes is the size of a row in bytes; of a ragged channel that of one value.
func (h Header) RowBytes() int {
	n := h.DType.Bytes()
	for _, d := range h.Row {
		n *= d
	}
	return n
}

// AppendLengths begins the data of ragged rows: their number, then how many values each has, as u32. The values follow.
func AppendLengths(dst []byte, lengths []int32) []byte {
	dst = appendLength(dst, int32(len(lengths)))
	for _, n := range lengths {
		dst = appendLength(dst, n)
	}
	return dst
}

func appendLength(dst []byte, n int32) []byte {
	return append(dst, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

// lengthAt is what appendLength has put at a place.
func lengthAt(data []byte, at int) int {
	return int(data[at]) | int(data[at+1])<<8 | int(data[at+2])<<16 | int(data[at+3])<<24
}

// Holds reports whether data are so many rows and nothing else: back to back, or ragged as AppendLengths says.
func (h Header) Holds(rows int, data []byte) bool {
	if rows < 0 || !h.Ragged {
		return rows >= 0 && len(data) == rows*h.RowBytes()
	}
	head := 4 + 4*rows
	if len(data) < head || lengthAt(data, 0) != rows {
		return false
	}
	values := 0
	for at := 4; at < head; at += 4 {
		values += lengthAt(data, at)
	}
	return len(data)-head == values*h.RowBytes()
}

// Same reports whether rows of both can stand in one channel.
func (h Header) Same(o Header) bool {
	return h.Name == o.Name && h.DType == o.DType && h.Ragged == o.Ragged && h.Align == o.Align && slices.Equal(h.Row, o.Row)
}

// Check refuses a header that no channel can have.
func (h Header) Check() error {
	switch {
	case h.Name == "" || strings.ContainsFunc(h.Name, func(r rune) bool { return !nameRune(r) }):
		return fmt.Errorf("channel %.40q: want a name of letters, digits, _, - and dots", h.Name)
	case h.DType.Bytes() == 0:
		return fmt.Errorf("channel %s has the type %.20q, want one of u8, u16, i8, i16, i32, i64, f16, bf16, f32", h.Name, h.DType)
	case h.Align != Passes && h.Align != Sampled && h.Align != Tokens:
		return fmt.Errorf("channel %s is aligned to %.20q, want passes, sampled or tokens", h.Name, h.Align)
	case h.Ragged && len(h.Row) > 0:
		return fmt.Errorf("channel %s has rows of the shape %v and of lengths of their own: want one of both", h.Name, h.Row)
	}
	values := 1
	for _, d := range h.Row {
		if d < 1 || d > rowValuesMax || values*d > rowValuesMax {
			return fmt.Errorf("channel %s has rows of the shape %v: want sizes of at least 1, and at most %d values in a row", h.Name, h.Row, rowValuesMax)
		}
		values *= d
	}
	return nil
}

func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.'
}
