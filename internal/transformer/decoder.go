package transformer

import "fmt"

// Row is one token to feed to a [Decoder]: the token at a position of a slot.
type Row struct {
	Slot     int32
	Position int32 // in the context; the slot's rows arrive in order of position
	Token    int32
	// Start marks the first token of a sequence: the slot's earlier contents are forgotten. Its
	// Position may be any within the context.
	Start bool
	// Logits asks for the logits of the next token after this row.
	Logits bool
}

// Decoder generates for many slots at once over a key-value cache. A step takes any rows: one new
// token each for slots that decode. A slot that takes in its prompt has several in a row, in the same
// step. One goroutine per Decoder; a step allocates nothing.
//
// The weights are an argument of the step: the cache keeps keys and values
// made by earlier weights when they change between two tokens.
type Decoder struct {
	config Config
	layout layout
	slots  int
	rows   int // capacity of a step
	padded int // context rounded up to whole tiles

	first, next []int32   // of each slot: position of its first token, and of the token it expects
	keys        []float32 // layer, slot, head, head width, context: transposed for the scores
	values      []float32 // layer, slot, context, width

	residual, normed, qkv, attended, hidden, scores, inverse, logits, transposed []float32
}

// NewDecoder returns a decoder with the given number of slots whose steps take
// at most rows rows.
func NewDecoder(c Config, slots, rows int) (*Decoder, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if slots < 1 || rows < 1 {
		return nil, fmt.Errorf("transformer: decoder of %d slots and %d rows a step; both must be at least 1", slots, rows)
	}
	padded := pad16(c.Context)
	return &Decoder{
		config: c, layout: newLayout(c), slots: slots, rows: rows, padded: padded,
		first: make([]int32, slots), next: make([]int32, slots),
		keys:     make([]float32, c.Layers*slots*c.Width*padded),
		values:   make([]float32, c.Layers*slots*c.Context*c.Width),
		residual: make([]float32, rows*c.Width), normed: make([]float32, rows*c.Width),
		qkv: make([]float32, rows*3*c.Width), attended: make([]float32, rows*c.Width),
		hidden: make([]float32, rows*c.Hidden), scores: make([]float32, padded),
		inverse: make([]float32, rows), logits: make([]float32, rows*c.Vocabulary),
		transposed: make([]float32, c.Width*c.Vocabulary),
	}, nil
}

// DecoderBytes is what NewDecoder takes for every slot and for every row of a step, in bytes of memory.
func DecoderBytes(c Config) (slot, row int64) {
	slot = int64(c.Layers) * int64(c.Width) * int64(pad16(c.Context)+c.Context)
	row = int64(6*c.Width + c.Hidden + 1 + c.Vocabulary)
	return 4*slot + 8, 4 * row
}

// Rows is the largest number of rows a step takes.
func (d *Decoder) Rows() int { return d.rows }

// Slots is the number of sequences the cache holds.
func (d *Decoder) Slots() int { return d.slots }

// Step feeds the rows and returns the logits of those that ask for them, one after the other in row
// order. They are valid until the next step. An error leaves the cache as it was.
func (d *Decoder) Step(w *Parameters, rows []Row) ([]float32, error) {
	if w.config != d.config {
		return nil, fmt.Errorf("transformer: weights of shape %+v in a decoder of shape %+v", w.config, d.config)
	}
	if err := d.check(rows); err != nil {
		return nil, err
	}
	c, n := d.config, len(rows)
	d.embed(w, rows)
	for i := range c.Layers {
		d.layer(w, i, rows)
	}
	// Only the rows that ask go through the unembedding.
	asked := 0
	for r := range rows {
		if rows[r].Logits {
			copy(d.residual[asked*c.Width:(asked+1)*c.Width], d.residual[r*c.Width:])
			asked++
		}
	}
	for r := range n {
		d.next[rows[r].Slot] = rows[r].Position + 1
	}
	gain := w.data[d.layout.norm : d.layout.norm+c.Width]
	normalize(d.normed, d.residual, gain, d.inverse, asked)
	if asked > 0 {
		w.unembed(d.transposed, d.logits, d.normed, asked)
	}
	return d.logits[:asked*c.Vocabulary], nil
}

// check refuses rows that would read outside the cache or leave holes in it.
// Only once all are good does it note where sequences start.
func (d *Decoder) check(rows []Row) error {
	if len(rows) == 0 || len(rows) > d.rows {
		return fmt.Errorf("transformer: step of %d rows; it takes 1 to %d", len(rows), d.rows)
	}
	for i, r := range rows {
		if r.Slot < 0 || int(r.Slot) >= d.slots || r.Token < 0 || int(r.Token) >= d.config.Vocabulary ||
			r.Position < 0 || int(r.Position) >= d.config.Context {
			return fmt.Errorf("transformer: row %d is token %d at position %d of slot %d; the decoder has %d tokens, %d positions and %d slots",
				i, r.Token, r.Position, r.Slot, d.config.Vocabulary, d.config.Context, d.slots)
		}
		if r.Start {
			for _, earlier := range rows[:i] {
				if earlier.Slot == r.Slot {
					return fmt.Errorf("transformer: row %d starts slot %d, which an earlier row of the same step feeds", i, r.Slot)
				}
			}
			continue
		}
		want := d.next[r.Slot]
		for j := i - 1; j >= 0; j-- {
			if rows[j].Slot == r.Slot {
				want = rows[j].Position + 1
				break
			}
		}
		if r.Position != want {
			return fmt.Errorf("transformer: row %d feeds position %d of slot %d, which expects %d", i, r.Position, r.Slot, want)
		}
	}
	for _, r := range rows {
		if r.Start {
			d.first[r.Slot] = r.Position
		}
	}
	return nil
}

func (d *Decoder) embed(w *Parameters, rows []Row) {
	width := d.config.Width
	for i, r := range rows {
		t := w.data[d.layout.token+int(r.Token)*width:][:width]
		q := w.data[d.layout.position+int(r.Position)*width:][:width]
		x := d.residual[i*width : (i+1)*width]
		for j := range x {
			x[j] = t[j] + q[j]
		}
	}
}

func (d *Decoder) layer(w *Parameters, i int, rows []Row) {
	c, l, n := d.config, d.layout.layers[i], len(rows)
	normalize(d.normed, d.residual, w.data[l.attentionNorm:l.attentionNorm+c.Width], d.inverse, n)
	gemm(n, 3*c.Width, c.Width, d.normed, c.Width, 1, w.data[l.qkv:], 3*c.Width, d.qkv, 3*c.Width, false)
	for r := range rows {
		d.attend(i, r, rows[r])
	}
	gemm(n, c.Width, c.Width, d.attended, c.Width, 1, w.data[l.output:], c.Width, d.residual, c.Width, true)
	normalize(d.normed, d.residual, w.data[l.hiddenNorm:l.hiddenNorm+c.Width], d.inverse, n)
	hidden := d.hidden[:n*c.Hidden]
	gemm(n, c.Hidden, c.Width, d.normed, c.Width, 1, w.data[l.up:], c.Hidden, hidden, c.Hidden, false)
	rectify(hidden)
	gemm(n, c.Width, c.Hidden, hidden, c.Hidden, 1, w.data[l.down:], c.Width, d.residual, c.Width, true)
}

// attend stores row r's key and value and attends over what its slot holds.
func (d *Decoder) attend(layer, r int, row Row) {
	width, heads, hw := d.config.Width, d.config.Heads, d.config.headWidth()
	block := layer*d.slots + int(row.Slot)
	keys := d.keys[block*width*d.padded:][:width*d.padded]
	values := d.values[block*d.config.Context*width:][:d.config.Context*width]
	q := d.qkv[r*3*width : r*3*width+width]
	at := int(row.Position)
	for j, k := range d.qkv[r*3*width+width : r*3*width+2*width] {
		keys[j*d.padded+at] = k
	}
	copy(values[at*width:(at+1)*width], d.qkv[r*3*width+2*width:])
	first := int(d.first[row.Slot])
	n := at + 1 - first
	scale := attentionScale(hw)
	scores := d.scores[:n]
	for h := range heads {
		gemm(1, n, hw, q[h*hw:], hw, 1, keys[h*hw*d.padded+first:], d.padded, scores, n, false)
		for j := range scores {
			scores[j] *= scale
		}
		softmax(scores)
		gemm(1, hw, n, scores, n, 1, values[first*width+h*hw:], width, d.attended[r*width+h*hw:], hw, false)
	}
}
