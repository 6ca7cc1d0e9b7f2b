package dashboard

import (
	"math"
	"math/rand/v2"
	"testing"
)

// filled are rows with spans of very different lengths: some tracks of milliseconds, some of minutes, with pauses.
func filled(tracks, spans, most int) (r rows, end int64) {
	r = newRows(tracks, most)
	random := rand.New(rand.NewPCG(1, 2))
	at := make([]int64, tracks)
	for i := range spans {
		t := i % tracks
		mean := 1e6 * math.Pow(4, float64(t%8))
		from := at[t]
		if random.IntN(50) == 0 {
			from += int64(100 * mean)
		}
		to := from + 1 + int64(mean*random.ExpFloat64())
		r.add(t, span{from: from, to: to, ref: int32(i + 1), version: int32(i / 100), count: 1, kind: SpanGenerate})
		at[t], end = to, max(end, to)
	}
	return r, end
}

// straight merges the spans of a window one by one.
func (r *rows) straight(track int, w window) []span {
	m := merger{width: w.pixel}
	for i := range r.spans[track] {
		if s := &r.spans[track][i]; s.to > w.from && s.from < w.to {
			m.add(s)
		}
	}
	m.flush()
	return m.out
}

// A tile made of a pyramid's blocks shows what one made of all the spans does: the same number of them, in order,
// none merged that reaches further than pixels, the long ones as they are; also after the older ones were thinned.
func TestTilesOfBlocksAreThoseOfSpans(t *testing.T) {
	for _, most := range []int{1 << 20, 20_000} {
		r, end := filled(8, 50_000, most)
		if thinned := r.generation > 0; thinned != (most < 50_000) {
			t.Fatalf("thinned %d times with room for %d", r.generation, most)
		}
		for _, share := range []float64{1, 0.1, 0.01, 1e-3} {
			level := int(math.Ceil(math.Log2(float64(end) * share / 1000 / tilePixels)))
			for index := range int64(3) {
				w := windowOf(level, index, 0, 8)
				tile := r.tile(w, make([][]span, 8), nil, 0)
				at := 0
				for track := range 8 {
					want, got := r.straight(track, w), at
					for at < len(tile.Track) && tile.Track[at] == int32(track) {
						at++
					}
					sameSpans(t, w, tile, got, at, want)
				}
				if at != len(tile.Track) {
					t.Fatalf("%d spans of %d are in the order of tracks", at, len(tile.Track))
				}
			}
		}
	}
}

// sameSpans compares a track of a tile with its spans merged one by one.
func sameSpans(t *testing.T, w window, tile *Tile, from, to int, want []span) {
	t.Helper()
	counts, longs, wantCounts, wantLongs := 0, map[int32]bool{}, 0, 0
	for i := from; i < to; i++ {
		counts += int(tile.Count[i])
		if i > from && tile.Start[i] < tile.End[i-1]-0.01 {
			t.Fatalf("spans overlap: %g after %g", tile.Start[i], tile.End[i-1])
		}
		if tile.Count[i] > 1 && tile.End[i]-tile.Start[i] > 3 && w.pixel > 1e9 {
			t.Fatalf("%d spans were merged into %g pixels", tile.Count[i], tile.End[i]-tile.Start[i])
		}
		if tile.Count[i] == 1 && tile.End[i]-tile.Start[i] >= 1 {
			longs[tile.Ref[i]] = true
		}
	}
	for _, s := range want {
		wantCounts += int(s.count)
		if s.count == 1 && s.to-s.from >= w.pixel {
			wantLongs++
			if !longs[s.ref] {
				t.Fatalf("span %d of %d ns at a pixel of %d is missing", s.ref, s.to-s.from, w.pixel)
			}
		}
	}
	if counts != wantCounts || len(longs) != wantLongs || to-from > 3*len(want)/2+8 {
		t.Fatalf("%d spans in %d, %d of them long; one by one %d in %d, %d long", counts, to-from, len(longs), wantCounts, len(want), wantLongs)
	}
}

// All blocks of a track are fewer spans than the track has.
func TestPyramidsAreBounded(t *testing.T) {
	r, _ := filled(4, 40_000, 1<<20)
	for track, p := range r.pyramids {
		held := 0
		for _, level := range p {
			held += len(level.spans)
			if len(level.ends) != len(level.widths) {
				t.Fatalf("%d ends, %d widths", len(level.ends), len(level.widths))
			}
		}
		if len(p) < 7 || held > len(r.spans[track]) {
			t.Errorf("track %d: %d levels hold %d spans of %d", track, len(p), held, len(r.spans[track]))
		}
	}
}

// What is merged looks like its longest part, in whatever order the parts were merged.
func TestMergedLooksLikeItsLongest(t *testing.T) {
	m := merger{width: 100}
	for _, s := range []span{{from: 0, to: 20, version: 1, count: 1}, {from: 20, to: 50, version: 2, count: 1}, {from: 50, to: 60, version: 3, count: 1}} {
		m.add(&s)
	}
	m.flush()
	twice := merger{width: 1000}
	twice.add(&m.out[0])
	twice.add(&span{from: 60, to: 100, version: 4, count: 1}) // shorter than the merged, longer than each part
	twice.flush()
	if s := twice.out[0]; len(m.out) != 1 || m.out[0].version != 2 || s.version != 4 || s.count != 4 {
		t.Errorf("%+v, then %+v", m.out, twice.out)
	}
}

// BenchmarkTileOfManyTracks is a tile, encoded, of 10⁶ spans in 256 tracks, and of shares of it.
func BenchmarkTileOfManyTracks(b *testing.B) {
	const tracks = 256
	r := newRows(tracks, 1<<21)
	random := rand.New(rand.NewPCG(1, 2))
	at := make([]int64, tracks)
	for i := range 1_000_000 {
		t := i % tracks
		to := at[t] + 1 + int64(28e9*random.ExpFloat64())
		r.add(t, span{from: at[t], to: to, ref: int32(i), version: int32(i / 256), count: 1})
		at[t] = to
	}
	for _, shown := range []struct {
		name  string
		share float64
	}{{"whole", 1}, {"half", 0.5}, {"eighth", 0.125}, {"hundredth", 0.01}} {
		level := int(math.Ceil(math.Log2(float64(at[0]) * shown.share / 1000 / tilePixels)))
		b.Run(shown.name, func(b *testing.B) {
			size := 0
			for b.Loop() {
				size = len(r.tile(windowOf(level, 0, 0, tracks), make([][]span, tracks), nil, 0).encode())
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
