package checker

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// entry is a line of the log: an event, an action that follows from it, or a note.
type entry struct {
	line   int   // from 1
	n      int64 // the number of the event
	t      int64 // its time
	kind   string
	action bool
	note   bool
	data   []byte // of a note

	engine, slot, sample, attempt, tokens, count int64
	group, lease, version, start, ready          int64
	versionTokens                                int64
	reward                                       float32
	noReward                                     bool
	mark, reason, end                            string
	// cell has said the event, empty for a plane. process and place are which of the cell's it is.
	cell           string
	process, place int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readLog reads the text of the log of a run: a file of its own, or in the run's directory, packed or plain.
func readLog(ending history.Ending) ([]byte, error) {
	if ending.Log != "" {
		return os.ReadFile(ending.Log)
	}
	dir := ending.Dir
	packed, err := os.ReadFile(filepath.Join(dir, "trace.ndjson.zst"))
	if errors.Is(err, os.ErrNotExist) {
		return os.ReadFile(filepath.Join(dir, "trace.ndjson"))
	}
	if err != nil {
		return nil, err
	}
	d, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	text, err := io.ReadAll(d)
	if errors.Is(err, io.ErrUnexpectedEOF) { // the file of a process that was killed may lack its end
		err = nil
	}
	return text, err
}

// parse reads the lines of a log. It stops at the first that is damaged.
func parse(text []byte) (entries []entry, err error) {
	entries = make([]entry, 0, bytes.Count(text, []byte{'\n'}))
	sum := uint32(0)
	const tail = len(`,"crc":"00000000"}`)
	for number := 1; len(text) > 0; number++ {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return entries, fmt.Errorf("line %d is torn: %q", number, text)
		}
		line := text[:end]
		text = text[end+1:]
		if len(line) < tail {
			return entries, fmt.Errorf("line %d is short: %q", number, line)
		}
		sum = crc32.Update(sum, castagnoli, line[:len(line)-tail])
		said, err := strconv.ParseUint(string(line[len(line)-10:len(line)-2]), 16, 32)
		if err != nil || uint32(said) != sum {
			return entries, fmt.Errorf("line %d ends in checksum %s, and %08x is that of all lines to it: %s", number, line[len(line)-10:len(line)-2], sum, line)
		}
		e := entry{line: number}
		if err := e.parse(line); err != nil {
			return entries, fmt.Errorf("line %d: %w: %s", number, err, line)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// words are the texts that lines often have.
var words = map[string]string{}

func init() {
	for _, w := range []string{
		"run-started", "recovered", "stop-requested", "train-step-ended", "train-step-failed", "lease-returned", "trainer-restored", "trainer-ready",
		"weights-loaded", "weights-switched", "sync-failed", "engine-lost", "engine-joined", "tick", "first-token", "rollout-scored", "rollout-failed",
		"rollout-aborted", "rollout-interrupted", "start-rollout", "resume-rollout", "interrupt-rollout", "abort-rollout", "start-train-step",
		"load-weights", "switch-weights", "finish-run", "group-queued", "group-held", "group-leased", "group-trained", "group-ended", "sync-completed",
	} {
		words[w] = w
	}
}

func word(b []byte) string {
	if w, ok := words[string(b)]; ok {
		return w
	}
	return string(b)
}

// parse reads a flat object, whose field "data" may be anything.
func (e *entry) parse(line []byte) error {
	at := 1
	for at < len(line) && line[at] == '"' {
		end := bytes.IndexByte(line[at+1:], '"')
		if end < 0 {
			return errors.New("a name without an end")
		}
		key := line[at+1 : at+1+end]
		at += end + 3 // behind the colon
		if string(key) == "data" {
			e.data = line[at : len(line)-len(`,"crc":"00000000"}`)]
			return nil
		}
		if at >= len(line) {
			return errors.New("a name without a value")
		}
		value := line[at:]
		switch value[0] {
		case '"':
			end = bytes.IndexByte(value[1:], '"') + 2
		case '[':
			end = bytes.IndexByte(value, ']') + 1
		default:
			end = bytes.IndexAny(value, ",}")
		}
		if end <= 0 {
			return errors.New("a value without an end")
		}
		if err := e.field(key, value[:end]); err != nil {
			return err
		}
		at += end + 1 // behind the comma
	}
	return nil
}

func (e *entry) field(key, value []byte) error {
	if value[0] == '"' {
		text := value[1 : len(value)-1]
		switch string(key) {
		case "e":
			e.kind = word(text)
		case "a":
			e.kind, e.action = word(text), true
		case "note":
			e.kind, e.note = word(text), true
		case "reason":
			e.reason = string(text)
		case "end":
			e.end = string(text)
		case "verdict":
			e.mark = string(text)
		case "cell":
			e.cell = string(text)
		case "reward":
			e.noReward = true
		}
		return nil
	}
	switch string(key) {
	case "reward":
		f, err := strconv.ParseFloat(string(value), 32)
		e.reward = float32(f)
		return err
	case "drift", "value", "made", "resumed":
		return nil
	}
	v, err := number(value)
	if err != nil {
		return err
	}
	switch string(key) {
	case "n":
		e.n = v
	case "t":
		e.t = v
	case "engine":
		e.engine = v
	case "slot":
		e.slot = v
	case "g":
		e.group = v
	case "s":
		e.sample = v
	case "attempt":
		e.attempt = v
	case "tokens":
		e.tokens = v
	case "count":
		e.count = v
	case "lease":
		e.lease = v
	case "v":
		e.version = v
	case "start_v":
		e.start = v
	case "ready_v":
		e.ready = v
	case "v_tokens":
		e.versionTokens = v
	case "inc":
		e.process = v
	case "q":
		e.place = v
	}
	return nil
}

func number(b []byte) (int64, error) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 18 {
		return 0, fmt.Errorf("%q is no number", b)
	}
	v := int64(0)
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, fmt.Errorf("%q is no number", b)
		}
		v = v*10 + int64(d-'0')
	}
	if neg {
		v = -v
	}
	return v, nil
}
