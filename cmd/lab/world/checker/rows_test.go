package checker

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// rowsFile is an answer with rows, as a plane sends it.
func rowsFile(parts [][3]int64, rows []byte) []byte {
	var data []byte
	for _, p := range parts {
		for _, n := range p {
			data = binary.LittleEndian.AppendUint64(data, uint64(n))
		}
	}
	header, _ := json.Marshal(map[string]any{
		"parts": map[string]any{"dtype": "I64", "shape": []int{len(parts), 3}, "data_offsets": []int{0, len(data)}},
		"rows":  map[string]any{"dtype": "U8", "shape": []int{len(rows) / expertsBytes, expertsBytes}, "data_offsets": []int{len(data), len(data) + len(rows)}},
	})
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), append(data, rows...)...)
}

// Each row is that of the weights that sampled the token behind it.
func TestRows(t *testing.T) {
	s := Sampler{Start: "as started"}
	n := names{nameHash(s.Start), map[int32]uint64{}, nil}
	b := body{lease: leaseWord{Lease: 5, Version: 2}, tokens: []int32{1, 2, 9, 8}, mask: []byte{0, 0, 1, 1}, versions: []int32{-1, -1, 1, 2}, offsets: []int64{0, 4}, groups: []int64{3}}
	row := func(version int32, tokens ...int32) []byte {
		h := before(0)
		for _, token := range tokens {
			h = h.and(token)
		}
		return experts(n.of(version), h)
	}
	good := append(append(row(2, 1), row(1, 1, 2)...), row(2, 1, 2, 9)...)
	if fmt.Sprint(good) != "[4 2 4 2 2 1 2 7 7 3 2 4]" {
		t.Errorf("the rows are %v, and are other ones at an engine", good)
	}
	for name, c := range map[string]struct {
		parts  [][3]int64
		rows   []byte
		broken string
	}{
		"all":                {[][3]int64{{0, 0, 3}}, good, ""},
		"some":               {[][3]int64{{0, 1, 2}}, good[4:], ""},
		"none":               {nil, nil, ""},
		"of another version": {[][3]int64{{0, 1, 1}}, row(2, 1, 2), "choose others"},
		"of no version":      {[][3]int64{{0, 0, 1}}, row(3, 1), "choose others"},
		"behind the last":    {[][3]int64{{0, 3, 1}}, row(2, 1, 2, 9, 8), "behind the last"},
		"twice":              {[][3]int64{{0, 0, 1}, {0, 0, 1}}, append(row(2, 1), row(2, 1)...), "twice"},
		"without its bytes":  {[][3]int64{{0, 0, 3}}, good[:8], "without its bytes"},
		"of no part":         {[][3]int64{{0, 0, 1}}, good, "of no part"},
		"of no sequence":     {[][3]int64{{1, 0, 3}}, good, "has 1 sequences"},
	} {
		k := &check{sampler: s, count: map[string]int{}}
		k.said = hear(k, nil)
		k.said.batches = []batch{{body: &b}}
		k.said.channel(call{whole: true, status: 200}, &history.Exchange{Request: []byte(`{"attempt":1}`), Response: rowsFile(c.parts, c.rows)}, 5, "routed_experts")
		k.checkRows()
		if c.broken == "" && len(k.found) > 0 || !strings.Contains(fmt.Sprint(k.found), c.broken) {
			t.Errorf("%s: found %v, want %q", name, k.found, c.broken)
		}
	}
}
