package dashboard

// blockSpans is how many spans are merged into half as many, or fewer, at a time.
const blockSpans = 64

// pyramid holds a track's spans coarser and coarser, so that a tile of much of a run need not read every span of
// it. It is built as spans are added. Of its first level a block stands for blockSpans spans of the track, of each
// further level for two blocks of the level before. No block has more than blockSpans/2 spans, so that all levels
// together have fewer than the track.
type pyramid []coarse

// coarse is one level of a pyramid.
type coarse struct {
	spans  []span
	ends   []int32 // of every block, where in spans it ends
	widths []int64 // of every block, ns: it differs from the track only in what is shorter than this
}

// block returns the spans of a block.
func (c *coarse) block(i int) []span {
	from := int32(0)
	if i > 0 {
		from = c.ends[i-1]
	}
	return c.spans[from:c.ends[i]]
}

// take adds a block that stands for spans in which nothing longer than a width was merged.
func (c *coarse) take(spans []span, width int64) {
	if n := len(c.widths); n > 0 {
		width = max(width, c.widths[n-1]/2) // neighbours are alike: most often this does at once
	}
	before := len(c.spans)
	for ; ; width *= 2 {
		m := merger{width: width, out: c.spans[:before]}
		for i := range spans {
			m.add(&spans[i])
		}
		m.flush()
		if c.spans = m.out; len(c.spans)-before <= blockSpans/2 {
			break
		}
	}
	c.ends, c.widths = append(c.ends, int32(len(c.spans))), append(c.widths, width)
}

// grow makes the blocks that the newest spans of a track complete.
func (p *pyramid) grow(spans []span) {
	blocks := len(spans) / blockSpans
	for level := 0; blocks > 0; level, blocks = level+1, blocks/2 {
		if level == len(*p) {
			*p = append(*p, coarse{})
		}
		for i := len((*p)[level].ends); i < blocks; i++ {
			if level == 0 {
				(*p)[0].take(spans[i*blockSpans:(i+1)*blockSpans], 1000)
				continue
			}
			below := &(*p)[level-1]
			pair := below.spans[below.ends[2*i]-int32(len(below.block(2*i))) : below.ends[2*i+1]]
			(*p)[level].take(pair, max(below.widths[2*i], below.widths[2*i+1]))
		}
	}
}

// rebuild makes the blocks anew, after a track's spans were thinned.
func (p *pyramid) rebuild(spans []span) {
	for level := range *p {
		c := &(*p)[level]
		c.spans, c.ends, c.widths = c.spans[:0], c.ends[:0], c.widths[:0]
	}
	p.grow(spans)
}

// cover gives the spans from index i up to index end, in pieces: blocks where nothing longer than a width was
// merged in them, the largest there are, and else the spans themselves.
func (p pyramid) cover(spans []span, i, end int, width int64, give func([]span)) {
	for i < end {
		if i%blockSpans != 0 || i+blockSpans > end {
			next := min((i/blockSpans+1)*blockSpans, end)
			give(spans[i:next])
			i = next
			continue
		}
		block, length := i/blockSpans, blockSpans
		piece := spans[i : i+blockSpans]
		for level := range p {
			at := block >> level
			if at<<level != block || i+blockSpans<<level > end || at >= len(p[level].ends) || p[level].widths[at] > width {
				break
			}
			piece, length = p[level].block(at), blockSpans<<level
		}
		give(piece)
		i += length
	}
}
