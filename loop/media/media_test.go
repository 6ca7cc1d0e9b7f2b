package media_test

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop/media"
)

const pad = 9

func image(name byte) media.Item { return media.Item{Modality: media.Image, Hash: media.Hash{name}} }

func TestFindAndCollapse(t *testing.T) {
	for _, c := range []struct {
		name      string
		ids       []int32
		images    int
		want      [][2]int32
		collapsed []int32
	}{
		{"none", []int32{1, 2}, 0, nil, []int32{1, 2}},
		{"one", []int32{1, 9, 9, 9, 2}, 1, [][2]int32{{1, 3}}, []int32{1, 9, 2}},
		{"two, of different lengths", []int32{9, 9, 1, 9, 2}, 2, [][2]int32{{0, 2}, {3, 1}}, []int32{9, 1, 9, 2}},
		{"at the end", []int32{1, 9, 9}, 1, [][2]int32{{1, 2}}, []int32{1, 9}},
		{"a text with the word of a placeholder", []int32{1, 9, 2, 9, 9}, 1, nil, nil},
		{"a template that leaves one out", []int32{1, 9, 9, 2}, 2, nil, nil},
		{"two that touch", []int32{9, 9, 9, 9}, 2, nil, nil},
	} {
		sent := make([]media.Item, c.images)
		for i := range sent {
			sent[i] = image(byte(i + 1))
		}
		got, err := media.Find(sent, c.ids, pad, 0)
		if (err == nil) != (c.collapsed != nil) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err != nil {
			continue
		}
		var places [][2]int32
		for i := range got {
			places = append(places, [2]int32{got[i].Offset, got[i].Length})
			if got[i].Hash != sent[i].Hash {
				t.Errorf("%s: item %d is another", c.name, i)
			}
		}
		if !slices.Equal(places, c.want) || media.Check(got, len(c.ids)) != nil {
			t.Errorf("%s: placeholders at %v, want %v", c.name, places, c.want)
		}
		if ids := media.Collapse(c.ids, got); !slices.Equal(ids, c.collapsed) {
			t.Errorf("%s: collapsed to %v, want %v", c.name, ids, c.collapsed)
		}
	}
}

// at is an image with its place.
func at(name byte, offset, length int32) media.Item {
	m := image(name)
	m.Offset, m.Length = offset, length
	return m
}

func TestCheck(t *testing.T) {
	for name, items := range map[string][]media.Item{
		"empty": {at(1, 2, 0)}, "beyond": {at(1, 8, 3)}, "overlap": {at(1, 1, 4), at(2, 3, 2)}, "order": {at(1, 5, 1), at(2, 1, 1)}, "before": {at(1, -1, 2)},
	} {
		if media.Check(items, 10) == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := media.Check([]media.Item{at(1, 0, 2), at(2, 2, 8)}, 10); err != nil {
		t.Error(err)
	}
}

// The same ids with another image are another history.
func TestCommon(t *testing.T) {
	a := []media.Item{at(1, 2, 3), at(2, 8, 3)}
	for _, c := range []struct {
		name  string
		other []media.Item
		n     int
		want  int
	}{
		{"equal", a, 20, 20},
		{"another second", []media.Item{at(1, 2, 3), at(3, 8, 3)}, 20, 8},
		{"another first", []media.Item{at(3, 2, 3), at(2, 8, 3)}, 20, 2},
		{"a blind one", nil, 20, 2},
		{"the difference lies behind", []media.Item{at(1, 2, 3)}, 6, 6},
	} {
		if got := media.Common(a, c.other, c.n); got != c.want {
			t.Errorf("%s: %d tokens in common, want %d", c.name, got, c.want)
		}
		if got := media.Common(c.other, a, c.n); got != c.want {
			t.Errorf("%s, the other way: %d tokens in common, want %d", c.name, got, c.want)
		}
	}
	if !media.Begins(a, a[:1], 7) || media.Begins(a, nil, 7) || media.Begins([]media.Item{at(3, 2, 3)}, a[:1], 7) {
		t.Error("Begins compares something else")
	}
}

func TestHash(t *testing.T) {
	h := media.Hash{1, 0xab}
	if got, ok := media.ParseHash(h.String()); !ok || got != h {
		t.Errorf("%v is read as %v, %v", h, got, ok)
	}
	for _, bad := range []string{"", "ab", h.String()[1:] + "G", "AB" + h.String()[2:]} {
		if _, ok := media.ParseHash(bad); ok {
			t.Errorf("%q is taken for a hash", bad)
		}
	}
}
