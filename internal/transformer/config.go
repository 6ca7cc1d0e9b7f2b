package transformer

import (
	"cmp"
	"fmt"
)

// Config is the shape of a model. Vocabulary has no default: the task sets it.
type Config struct {
	Vocabulary int // token ids are 0 ≤ id < Vocabulary
	Context    int // positions, at most this many tokens a sequence; 0 means DefaultContext
	Width      int // of the residual stream; 0 means DefaultWidth
	Layers     int // 0 means DefaultLayers
	Heads      int // must divide Width; 0 means DefaultHeads
	Hidden     int // width of the feed-forward layer; 0 means four times Width
}

// Defaults of Config: about 102 thousand parameters with a vocabulary of 29.
const (
	DefaultContext = 16
	DefaultWidth   = 64
	DefaultLayers  = 2
	DefaultHeads   = 4
)

// WithDefaults returns a copy with every zero field but Vocabulary filled in.
func (c Config) WithDefaults() Config {
	c.Context = cmp.Or(c.Context, DefaultContext)
	c.Width = cmp.Or(c.Width, DefaultWidth)
	c.Layers = cmp.Or(c.Layers, DefaultLayers)
	c.Heads = cmp.Or(c.Heads, DefaultHeads)
	c.Hidden = cmp.Or(c.Hidden, 4*c.Width)
	return c
}

// Validate reports the first field that cannot be, and the values that are allowed.
func (c Config) Validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"vocabulary", c.Vocabulary}, {"context", c.Context}, {"width", c.Width},
		{"layers", c.Layers}, {"heads", c.Heads}, {"hidden", c.Hidden},
	} {
		if f.value < 1 || f.value > 1<<16 {
			return fmt.Errorf("transformer: %s is %d; it must be between 1 and %d", f.name, f.value, 1<<16)
		}
	}
	if c.Vocabulary < 2 {
		return fmt.Errorf("transformer: vocabulary is %d; it must be at least 2", c.Vocabulary)
	}
	if c.Width%c.Heads != 0 {
		return fmt.Errorf("transformer: width %d is not a multiple of heads %d", c.Width, c.Heads)
	}
	return nil
}

// headWidth is the width of one attention head.
func (c Config) headWidth() int { return c.Width / c.Heads }

// Tensor names one view of the flat parameter vector.
type Tensor struct {
	Name   string
	Shape  []int
	Offset int // of the first element, in elements
}

// Elements is the number of elements in the tensor.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// ParameterCount is the number of elements of the flat vector.
func (c Config) ParameterCount() int { return newLayout(c).count }

// layout holds the offset of every tensor, so that the passes need no lookup
// by name.
type layout struct {
	tensors         []Tensor
	count           int
	token, position int
	layers          []layerLayout
	norm            int
}

type layerLayout struct {
	attentionNorm, qkv, output int
	hiddenNorm, up, down       int
}

func newLayout(c Config) layout {
	var l layout
	add := func(name string, shape ...int) int {
		t := Tensor{Name: name, Shape: shape, Offset: l.count}
		l.tensors = append(l.tensors, t)
		l.count += t.Elements()
		return t.Offset
	}
	l.token = add("token_embedding", c.Vocabulary, c.Width)
	l.position = add("position_embedding", c.Context, c.Width)
	for i := range c.Layers {
		prefix := fmt.Sprintf("layers.%d.", i)
		l.layers = append(l.layers, layerLayout{
			attentionNorm: add(prefix+"attention_norm", c.Width),
			qkv:           add(prefix+"attention_qkv", c.Width, 3*c.Width),
			output:        add(prefix+"attention_output", c.Width, c.Width),
			hiddenNorm:    add(prefix+"hidden_norm", c.Width),
			up:            add(prefix+"hidden_up", c.Width, c.Hidden),
			down:          add(prefix+"hidden_down", c.Hidden, c.Width),
		})
	}
	l.norm = add("final_norm", c.Width)
	return l
}
