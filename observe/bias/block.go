package bias

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// sums are those of one property of rollouts, such as the length: of all started
// whose value is known, and of those trained, as often as they were.
type sums struct {
	started, trained   int64
	startedX, trainedX float64
}

func (s *sums) scale(o *sums, sign float64) {
	s.started += int64(sign) * o.started
	s.trained += int64(sign) * o.trained
	s.startedX += sign * o.startedX
	s.trainedX += sign * o.trainedX
}

// ratio is the trained mean over the started mean; NaN without either.
func (s *sums) ratio() float64 {
	return s.trainedX / float64(s.trained) / (s.startedX / float64(s.started))
}

// moments are those of length y against position x in a batch.
type moments struct {
	n, x, xx, y, xy, yy float64
}

func (m *moments) scale(o *moments, sign float64) {
	m.n += sign * o.n
	m.x += sign * o.x
	m.xx += sign * o.xx
	m.y += sign * o.y
	m.xy += sign * o.xy
	m.yy += sign * o.yy
}

// slope is that of the least-squares line, in means of y per unit of x.
func (m *moments) slope() float64 {
	return (m.n*m.xy - m.x*m.y) / (m.n*m.xx - m.x*m.x) / (m.y / m.n)
}

func (m *moments) correlation() float64 {
	return (m.n*m.xy - m.x*m.y) / math.Sqrt((m.n*m.xx-m.x*m.x)*(m.n*m.yy-m.y*m.y))
}

// block sums what belongs to a number of consecutive train steps.
type block struct {
	// live counts groups opened in these steps that have not ended.
	live                int64
	length, environment sums
	order               moments
}

func (b *block) add(o *block)      { b.scale(o, 1) }
func (b *block) subtract(o *block) { b.scale(o, -1) }

func (b *block) scale(o *block, sign float64) {
	b.live += int64(sign) * o.live
	b.length.scale(&o.length, sign)
	b.environment.scale(&o.environment, sign)
	b.order.scale(&o.order, sign)
}

// blocksMax bounds the memory of a run of any length.
const blocksMax = 128

// series are the blocks of a run: when there would be too many, neighbours merge.
type series struct {
	blocks []block
	// steps is how many train steps each block spans.
	steps loop.Version
}

// of returns the block of a step, counted from the window's start.
func (s *series) of(step loop.Version) *block {
	for step/s.steps >= blocksMax {
		s.halve()
	}
	i := int(step / s.steps)
	for len(s.blocks) <= i {
		s.blocks = append(s.blocks, block{})
	}
	return &s.blocks[i]
}

func (s *series) halve() {
	for i := range s.blocks {
		if i%2 == 0 {
			s.blocks[i/2] = s.blocks[i]
		} else {
			s.blocks[i/2].add(&s.blocks[i])
		}
	}
	s.blocks = s.blocks[:(len(s.blocks)+1)/2]
	s.steps *= 2
}

// closed returns the blocks before the first of which a group still lives. A group
// of the first half is not waited for: it is stuck, and says nothing of the others.
func (s *series) closed() []block {
	for i := range s.blocks {
		if s.blocks[i].live > 0 && i >= len(s.blocks)/2 {
			return s.blocks[:i]
		}
	}
	return s.blocks
}

// batches merges blocks into at most 20 batches of about as many steps each.
func batches(blocks []block) []block {
	n := min(len(blocks), batchesMax)
	merged := make([]block, n)
	for i := range blocks {
		merged[i*n/len(blocks)].add(&blocks[i])
	}
	return merged
}
