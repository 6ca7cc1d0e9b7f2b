package loop

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever is pushed, taken and dropped, those that wait are a plain list's, and so is their JSON. What is gone takes
// no more room than what was ever there at once.
func TestWaiting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var w waiting
	var plain []retry
	most := 0
	for i := range 20000 {
		switch n := rng.IntN(100); {
		case n < 50 && len(plain) < 300 || len(plain) == 0:
			r := retry{Group: int32(rng.IntN(9)), Sample: int32(i)}
			w.push(r)
			plain = append(plain, r)
		case n < 98:
			if got := w.pop(); got != plain[0] {
				t.Fatalf("after %d: took %v, want %v", i, got, plain[0])
			}
			plain = append(plain[:0], plain[1:]...)
		case n < 99:
			gi := int32(rng.IntN(9))
			w.drop(gi)
			plain = slices.DeleteFunc(plain, func(r retry) bool { return r.Group == gi })
		default:
			got, _ := json.Marshal(w)
			if want, _ := json.Marshal(plain); string(got) != string(want) {
				t.Fatalf("after %d: %s, want %s", i, got, want)
			}
			if err := json.Unmarshal(got, &w); err != nil {
				t.Fatal(err)
			}
		}
		most = max(most, len(plain))
		if !slices.Equal(w.all(), plain) || w.len() != len(plain) {
			t.Fatalf("after %d: %v, want %v", i, w.all(), plain)
		}
	}
	if cap(w.entries) > 8*most {
		t.Errorf("room for %d, where %d waited at most", cap(w.entries), most)
	}
}
