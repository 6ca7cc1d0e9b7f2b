package session

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/klauspost/compress/zstd"
)

// Format names a form of recorded sessions.
type Format string

// The formats that are read. The first line that is not empty says which one a file is of.
const (
	// Mooncake has one request a line: timestamp in ms, input_length, output_length and hash_ids, one for
	// each block of 512 tokens, equal in the whole file. It marks no sessions: every request is one.
	Mooncake Format = "mooncake"
	// Rollouts has one rollout a line: group, stream, prompt_len, out_lens, obs_lens and, where they were
	// recorded, tool_times in seconds.
	Rollouts Format = "rollouts"
	// ClaudeCode has one session a line, with its requests and those of its sub-agents.
	ClaudeCode Format = "claude-code"
	// Player has one conversation a line: conv_id and turns of input_tokens, output_tokens and pre_gap_s.
	Player Format = "player"
	// Headway is a run of this program; see [Of].
	Headway Format = "headway"
)

// Limits of a record. A line that is longer, or a value that is larger, is refused.
const (
	// MaxTokens is the longest input and the longest output of one call.
	MaxTokens = 1 << 26
	// MaxSeconds is the largest time, in seconds: 31 years.
	MaxSeconds = 1e9
	// MaxLine is the longest line, in bytes. Memory grows with the longest line, never with the file.
	MaxLine = 256 << 20
)

// Record reads one file of recorded sessions, from its first line to its last. Use one goroutine.
type Record struct {
	name   string
	format Format
	block  int
	// local: no later session has the blocks of the last.
	local bool
	lines lines
	first line
	parse func(line []byte) (Session, error)
	other iter.Seq2[Session, error] // in place of lines
	close []func() error
}

// Of is a record whose sessions come from elsewhere: those of a run, in groups of one prompt. Close releases nothing.
func Of(name string, sessions iter.Seq2[Session, error]) *Record {
	return &Record{name: name, format: Headway, other: sessions}
}

// Open opens a file, which may be compressed by gzip or Zstandard, and reads its first line. Errors name the
// file, and the line and column where there is one.
func Open(path string) (*Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := newRecord(f, path)
	r.close = append(r.close, f.Close)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func newRecord(in io.Reader, name string) (*Record, error) {
	r := &Record{name: name}
	text := bufio.NewReaderSize(in, 1<<18)
	magic, err := text.Peek(4)
	if err != nil && err != io.EOF {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(text)
		if err != nil {
			return r, fmt.Errorf("%s: it is compressed by gzip, and broken: %w", name, err)
		}
		text = bufio.NewReaderSize(plain, 1<<18)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		plain, err := zstd.NewReader(text, zstd.WithDecoderMaxWindow(1<<27), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return r, fmt.Errorf("%s: it is compressed by Zstandard, and broken: %w", name, err)
		}
		r.close = append(r.close, func() error { plain.Close(); return nil })
		text = bufio.NewReaderSize(plain, 1<<18)
	}
	r.lines = lines{in: text}
	if r.first, err = r.lines.next(); err == io.EOF {
		return r, fmt.Errorf("%s: the file is empty: want a JSON object a line", name)
	} else if err != nil {
		return r, r.at(r.first, err)
	}
	return r, r.at(r.first, r.detect(r.first.text))
}

// Close closes the file.
func (r *Record) Close() error {
	var errs []error
	for _, end := range r.close {
		errs = append(errs, end())
	}
	r.close = nil
	return errors.Join(errs...)
}

// Name returns the name of the file.
func (r *Record) Name() string { return r.name }

// Format returns the format that the first line showed.
func (r *Record) Format() Format { return r.format }

// BlockTokens returns how many tokens a block of [Call].Blocks holds; 0 where the format has no blocks.
func (r *Record) BlockTokens() int { return r.block }

// Grouped reports whether sessions of one Group begin with the same prompt, as rollouts of one do. Elsewhere
// Group and Sample say nothing.
func (r *Record) Grouped() bool { return r.format == Rollouts || r.format == Headway }

// Sessions returns the sessions in the order of the file, once. It ends after the first error, which names
// the line, the column or the field, and what was expected.
func (r *Record) Sessions() iter.Seq2[Session, error] {
	if r.other != nil {
		return r.other
	}
	return func(yield func(Session, error) bool) {
		for at := r.first; ; {
			s, err := r.parse(at.text)
			if err != nil {
				yield(Session{}, r.at(at, err))
				return
			}
			if !yield(s, nil) {
				return
			}
			switch at, err = r.lines.next(); {
			case err == io.EOF:
				return
			case err != nil:
				yield(Session{}, r.at(at, err))
				return
			}
		}
	}
}

// detect finds the format by the keys of a line.
func (r *Record) detect(text []byte) error {
	var keys struct {
		Input    json.RawMessage `json:"input_length"`
		Hashes   json.RawMessage `json:"hash_ids"`
		Outputs  json.RawMessage `json:"out_lens"`
		Requests json.RawMessage `json:"requests"`
		Turns    json.RawMessage `json:"turns"`
	}
	if err := decode(text, &keys); err != nil {
		return err
	}
	switch {
	case keys.Outputs != nil:
		r.format, r.parse = Rollouts, parseRollout
	case keys.Requests != nil:
		conversations := &claudeCode{record: r}
		r.format, r.parse = ClaudeCode, conversations.parse
	case keys.Input != nil || keys.Hashes != nil:
		requests := &mooncake{}
		r.format, r.parse, r.block = Mooncake, requests.parse, mooncakeBlock
	case keys.Turns != nil:
		r.format, r.parse = Player, parseConversation
	default:
		return errors.New("no known format: want a line with input_length and hash_ids (Mooncake), out_lens (rollout traces), requests (Claude Code sessions) or turns (trace_player)")
	}
	if r.format == ClaudeCode { // its blocks are as long as its lines say
		var head struct {
			Block *tokens `json:"block_size"`
		}
		if err := decode(text, &head); err != nil {
			return err
		}
		block, err := head.Block.between("block_size", 1)
		r.block = block
		return err
	}
	return nil
}

// at places an error of a line.
func (r *Record) at(in line, err error) error {
	if err == nil {
		return nil
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		if !in.ended && syntax.Offset >= int64(len(in.text)) {
			return fmt.Errorf("%s:%d:%d: the file ends within this line: it was cut off, or is still being written", r.name, in.number, syntax.Offset)
		}
		return fmt.Errorf("%s:%d:%d: no JSON object: %w", r.name, in.number, syntax.Offset, err)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s:%d:%d: %w", r.name, in.number, kind.Offset, asFault(kind))
	}
	return fmt.Errorf("%s:%d: %w", r.name, in.number, err)
}
