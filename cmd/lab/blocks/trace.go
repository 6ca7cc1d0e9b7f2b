package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
)

// blockTokens is the size of a block in Mooncake's traces.
const blockTokens = 512

// request is a line of a trace. Equal identifiers are the same block, the last of which may be begun only.
type request struct {
	Timestamp int64    `json:"timestamp"` // ms from the start
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	Hashes    []uint64 `json:"hash_ids"`
}

// trace is requests in the order in which they come.
type trace []request

// read reads a trace.
func read(in io.Reader) (trace, error) {
	var t trace
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(t)+1, err)
		}
		t = append(t, r)
	}
	sort.SliceStable(t, func(a, b int) bool { return t[a].Timestamp < t[b].Timestamp })
	return t, lines.Err()
}

// write writes it.
func (t trace) write(out io.Writer) error {
	lines := json.NewEncoder(out)
	for _, r := range t {
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// draw makes a trace of conversations: each begins with one of a few common beginnings or none, and every turn's input
// has all that was said before.
func draw(seed uint64, count int) trace {
	random := rand.New(rand.NewPCG(seed, 512))
	next := uint64(0)
	fresh := func(n int) []uint64 {
		ids := make([]uint64, n)
		for i := range ids {
			next++
			ids[i] = next
		}
		return ids
	}
	beginnings := make([][]uint64, 6)
	for i := range beginnings {
		beginnings[i] = fresh(1 + random.IntN(8))
	}
	var t trace
	for atMS := 0.0; len(t) < count; {
		atMS += 1000 * random.ExpFloat64()
		var ids []uint64 // of whole blocks
		if random.IntN(3) > 0 {
			ids = append(ids, beginnings[random.IntN(len(beginnings))]...)
		}
		tokens := len(ids)*blockTokens + 300 + int(6000*random.ExpFloat64())
		at := atMS
		for range 1 + int(4*random.ExpFloat64()) {
			output := 20 + int(350*random.ExpFloat64())
			ids = append(ids, fresh(tokens/blockTokens-len(ids))...)
			line := request{Timestamp: int64(at), Input: tokens, Output: output, Hashes: append([]uint64(nil), ids...)}
			if tokens%blockTokens > 0 {
				line.Hashes = append(line.Hashes, fresh(1)...)
			}
			t = append(t, line)
			tokens += output + 20 + int(900*random.ExpFloat64())
			at += 8000 + 60000*random.ExpFloat64()
			if tokens > 120000 {
				break
			}
		}
	}
	sort.SliceStable(t, func(a, b int) bool { return t[a].Timestamp < t[b].Timestamp })
	return t[:count]
}
