package checker

import (
	"maps"
	"testing"
)

// Only the very weights of an older version make a version that a trainer went back to its copy.
func TestCopies(t *testing.T) {
	said := func(version int64, from int64, model string) publish {
		p := publish{manifest: publishWord{Version: version}, files: map[string][]byte{"model.safetensors": []byte(model)}}
		if from >= 0 {
			p.manifest.RestoredFrom = &from
		}
		return p
	}
	c := &check{said: &testimony{publishes: []publish{
		said(6, -1, "six"), said(8, 6, "six"), said(10, 8, "ten"), said(12, 8, "six"), said(14, 13, "six"), {manifest: publishWord{Version: 15}},
	}}}
	if got, want := c.copies(), map[int32]int32{8: 6, 12: 8}; !maps.Equal(got, want) {
		t.Errorf("copies %v, want %v", got, want)
	}
	for first, want := range map[string]map[int32]int32{"": {2: 0}, "zero": {2: 0}, "another": {}} { // "": a plane published version 0
		c.said.publishes = []publish{said(0, -1, first), said(2, 0, "zero")}
		if got := c.copies(); !maps.Equal(got, want) {
			t.Errorf("version 0 is %q: copies %v, want %v", first, got, want)
		}
	}
}

// A copy has the rows of the version that it is a copy of, and no other does.
func TestRowsOfCopies(t *testing.T) {
	n := names{7, map[int32]uint64{}, map[int32]int32{8: 6, 12: 8, 3: 0}}
	h := before(0).and(5)
	for version, want := range map[int32]map[int32]bool{12: {12: true, 8: true, 6: true}, 8: {8: true, 6: true}, 6: {6: true}, 10: {10: true}, 3: {3: true, 0: true}} {
		for of := range int32(14) {
			if got := n.chose(experts(n.of(of), h), h, version, version); got != want[of] {
				t.Errorf("version %d may have the rows of %d: %v", version, of, got)
			}
		}
	}
	if !n.chose(experts(7, h), h, 3, 3) || n.chose(experts(7, h), h, 6, 6) {
		t.Error("the weights that an engine starts with are those of version 0 and its copies")
	}
}
