package rows

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop/channel"
)

func TestMaskRows(t *testing.T) {
	for _, c := range []struct {
		name         string
		tokens       []int32
		sampled      int
		lengths, ids []int32
		want         Reason
	}{
		{"each in its own", []int32{7, 9}, 2, []int32{2, 1}, []int32{3, 7, 9}, ""},
		{"more behind a stop", []int32{7}, 2, []int32{2, 1}, []int32{3, 7, 9}, ""},
		{"none", []int32{7}, 1, nil, nil, Missing},
		{"one too few", []int32{7, 9}, 2, []int32{2}, []int32{3, 7}, Count},
		{"one too many", []int32{7}, 1, []int32{1, 1}, []int32{7, 9}, Count},
		{"a mask without its token", []int32{7, 9}, 2, []int32{1, 1}, []int32{7, 8}, Tokenless},
		{"a mask of nothing", []int32{7, 9}, 2, []int32{1, 0}, []int32{7}, Tokenless},
		{"below 0", []int32{7}, 1, []int32{2}, []int32{7, -1}, Negative},
		{"beyond the vocabulary", []int32{7}, 1, []int32{2}, []int32{7, 100}, Beyond},
	} {
		var m MaskRows
		for i, n := range c.lengths { // as they stream
			at := 0
			for _, before := range c.lengths[:i] {
				at += int(before)
			}
			m.Add([]int32{n}, c.ids[at:at+int(n)])
		}
		data, why := m.Of(c.tokens, c.sampled, 100)
		if why != c.want || why == "" && !Masks.Holds(len(c.tokens), data) {
			t.Errorf("%s: %q, want %q; %v", c.name, why, c.want, data)
		}
		if why == "" {
			want := channel.AppendLengths(nil, c.lengths[:len(c.tokens)])
			for _, id := range c.ids[:(len(data)-len(want))/4] {
				want = binary.LittleEndian.AppendUint32(want, uint32(id))
			}
			if !slices.Equal(data, want) {
				t.Errorf("%s: %v, want %v", c.name, data, want)
			}
		}
		m.Release()
	}
}

// Masks for which there is no room are dropped and say so, and what they held is free for others.
func TestMasksAreBounded(t *testing.T) {
	mask := make([]int32, 1<<20)
	var one, other MaskRows
	for one.Add([]int32{1 << 20}, mask); len(one.data) < MaskBytes*3/4; one.Add([]int32{1 << 20}, mask) {
	}
	if one.held > MaskBytes || one.problem != "" {
		t.Fatalf("%d bytes are held: %q", one.held, one.problem)
	}
	for range MaskBytes / 4 / (1 << 20) / 2 {
		other.Add([]int32{1 << 20}, mask)
	}
	if _, why := other.Of(nil, len(other.lengths), 0); why != NoRoom {
		t.Errorf("masks of more than is left: %q", why)
	}
	for range MaskBytes / 4 / (1 << 20) / 2 {
		one.Add([]int32{1 << 20}, mask)
	}
	if _, why := one.Of(nil, len(one.lengths), 0); why != NoRoom {
		t.Errorf("masks of more than there is room for: %q", why)
	}
	other = MaskRows{}
	if other.Add([]int32{1 << 20}, mask); other.problem != "" {
		t.Errorf("masks beside those that were dropped: %q", other.problem)
	}
	other.Release()
	one.Release()
	if !maskRoom.TryAcquire(MaskBytes) {
		t.Fatal("memory is still held")
	}
	maskRoom.Release(MaskBytes)
}
