package dashboard

import (
	"encoding/binary"
	"math"
	"sort"
)

// Bounds of a tile: what a browser draws within a frame, and what goes over the wire in some milliseconds.
const (
	tilePixels   = 1024
	tileSpansMax = 1 << 16
	tileFlowsMax = 2000
	// tileReadMax bounds what a tile is made of before it is merged.
	tileReadMax = 3 * tileSpansMax / 2
	// Levels: a pixel of 1 µs, and one of some 12 days.
	levelMin, levelMax = 0, 40
)

// window is what a tile shows.
type window struct {
	from, to, pixel     int64 // ns
	firstTrack, toTrack int
}

func windowOf(level int, index int64, firstTrack, toTrack int) window {
	pixel := int64(1000) << level
	return window{index * tilePixels * pixel, (index + 1) * tilePixels * pixel, pixel, firstTrack, toTrack}
}

// placed is a span with its track.
type placed struct {
	span
	track int32
}

// tile makes the tile of a window; open are the spans that have not ended, by track.
func (r *rows) tile(w window, open [][]span, arrows []flow, trainTrack int32) *Tile {
	width := r.widthFor(w)
	found, m := r.scratch[:0], merger{width: width}
	for t := max(w.firstTrack, 0); t < min(w.toTrack, len(r.spans)); t++ {
		m.out = m.out[:0]
		r.cover(t, w, width, func(piece []span) {
			for i := range piece {
				m.add(&piece[i])
			}
		})
		for i := range open[t] {
			if s := &open[t][i]; s.to > w.from && s.from < w.to {
				m.add(s)
			}
		}
		m.flush()
		for _, s := range m.out {
			found = append(found, placed{s, int32(t)})
		}
	}
	r.scratch = found
	for width *= 2; len(found) > tileSpansMax && width < w.to-w.from; width *= 2 {
		found = coarser(found, width)
	}
	return w.drawn(found, arrows, trainTrack)
}

// cover gives the spans of a track that touch a window, where shorter than a width perhaps merged already.
func (r *rows) cover(track int, w window, width int64, give func([]span)) {
	spans := r.spans[track]
	first := upTo(spans, w.from)
	end := first + sort.Search(len(spans)-first, func(i int) bool { return spans[first+i].from >= w.to })
	r.pyramids[track].cover(spans, first, end, width, give)
}

// widthFor is below what width spans are merged: a pixel, or the least power of it with which a tile is made of no
// more than tileReadMax.
func (r *rows) widthFor(w window) int64 {
	width := w.pixel
	for ; width < w.to-w.from; width *= 2 {
		read := 0
		for t := max(w.firstTrack, 0); t < min(w.toTrack, len(r.spans)) && read <= tileReadMax; t++ {
			r.cover(t, w, width, func(piece []span) { read += len(piece) })
		}
		if read <= tileReadMax {
			break
		}
	}
	return width
}

// coarser merges what is shorter than a width.
func coarser(found []placed, width int64) []placed {
	out := found[:0]
	for i := 0; i < len(found); {
		track, m := found[i].track, merger{width: width}
		for ; i < len(found) && found[i].track == track; i++ {
			m.add(&found[i].span)
		}
		m.flush()
		for _, s := range m.out {
			out = append(out, placed{s, track})
		}
	}
	return out
}

// drawn puts spans and arrows into pixels.
func (w window) drawn(found []placed, arrows []flow, trainTrack int32) *Tile {
	n := len(found)
	t := &Tile{Start: make([]float32, n), End: make([]float32, n), Track: make([]int32, n), Version: make([]int32, n),
		Count: make([]int32, n), Ref: make([]int32, n), Kind: make([]SpanKind, n)}
	for i := range found {
		s := &found[i]
		t.Start[i], t.End[i] = w.x(s.from), w.x(s.to)
		t.Track[i], t.Version[i], t.Count[i], t.Ref[i], t.Kind[i] = s.track, s.version, s.count, s.ref, s.kind
	}
	for _, a := range arrows {
		t.FlowX0, t.FlowX1 = append(t.FlowX0, w.x(a.from)), append(t.FlowX1, w.x(a.to))
		t.FlowTrack0, t.FlowTrack1 = append(t.FlowTrack0, a.track), append(t.FlowTrack1, trainTrack)
		t.FlowVersion, t.FlowRef = append(t.FlowVersion, a.version), append(t.FlowRef, int32(a.group))
	}
	return t
}

// x is where a time lies, in pixels from the window's beginning.
func (w window) x(at int64) float32 { return float32(float64(at-w.from) / float64(w.pixel)) }

// encode returns the tile as it goes over the wire.
func (t *Tile) encode() []byte {
	n, f := len(t.Start), len(t.FlowX0)
	b := make([]byte, 0, 12+n*25+4+f*24)
	b = append(b, "HWT1"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = binary.LittleEndian.AppendUint32(b, uint32(f))
	floats := func(column []float32) {
		for _, v := range column {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	whole := func(column []int32) {
		for _, v := range column {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	floats(t.Start)
	floats(t.End)
	for _, column := range [][]int32{t.Track, t.Version, t.Count, t.Ref} {
		whole(column)
	}
	for _, k := range t.Kind {
		b = append(b, byte(k))
	}
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	floats(t.FlowX0)
	floats(t.FlowX1)
	for _, column := range [][]int32{t.FlowTrack0, t.FlowTrack1, t.FlowVersion, t.FlowRef} {
		whole(column)
	}
	return b
}
