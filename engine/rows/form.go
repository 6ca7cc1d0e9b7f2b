package rows

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/headway-rl/headway/loop/channel"
)

// Wire is how a server writes the rows of a channel.
type Wire int

// Wires.
const (
	// Lists are lists of numbers, which the decoder of a dialect reads.
	Lists Wire = iota
	// Numpy is the base64 text of a .npy file of u8 or u16, which says its shape.
	Numpy
	// Int32 is the base64 text of int32 back to back.
	Int32
)

// Form is how a server writes the rows of a channel, and how they are kept.
type Form struct {
	// Header is of the rows as they are kept. Of experts, Row is layers × top-k, or their product where that is all
	// that is known.
	channel.Header
	Wire Wire
	// Experts is how many there are in a layer, 0 for unknown.
	Experts int
	// Routed says of each layer whether it was found to have experts; nil for unknown.
	Routed []bool
	// Whole says that answers have all rows from the first one, whichever was asked for.
	Whole bool
}

// Shape is what a model says of its experts; 0 for what it does not say.
type Shape struct{ Layers, TopK, Experts int }

// Expected is the form in which a channel is kept, by what is known of the model before an answer was seen.
func Expected(name string, known Shape) channel.Header {
	h := channel.Header{Name: name, DType: channel.I32, Align: channel.Passes}
	switch name {
	case channel.SamplingMask:
		return Masks.Header
	case channel.RoutedExperts:
		h.DType = TypeOf(known.Experts)
		if known.Layers > 0 && known.TopK > 0 {
			h.Row = []int{known.Layers, known.TopK}
		}
	}
	return h
}

// TypeOf is the smallest type that holds the numbers of so many experts. It holds any where their number is 0.
func TypeOf(experts int) channel.DType {
	if experts > 0 && experts <= 1<<8 {
		return channel.U8
	}
	return channel.U16
}

// Learn makes the form of a channel out of the text that an answer of so many passes has for its rows. The model's own
// numbers are known. The error says why the text cannot be used.
func Learn(name string, wire Wire, text string, passes int, known Shape) (Form, error) {
	f := Form{Header: channel.Header{Name: name, Align: channel.Passes}, Wire: wire}
	file, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return f, errors.New("its rows are no base64")
	}
	number, layers, topK, n := 4, known.Layers, known.TopK, passes
	if wire == Numpy {
		h, size, ok := parseHead(file)
		if !ok || size == 0 || len(h.shape) != 3 {
			return f, errors.New("its rows are no .npy file of u8 or u16 with three dimensions")
		}
		file, f.DType, number = file[size:], h.dtype, h.dtype.Bytes()
		n, layers, topK = h.shape[0], h.shape[1], h.shape[2]
	}
	width := len(file) / number / max(n, 1)
	if n != passes || width == 0 || width*number*n != len(file) {
		return f, fmt.Errorf("%d bytes and %d rows for %d passes", len(file), n, passes)
	}
	if name != channel.RoutedExperts {
		f.DType, f.Row = channel.I32, []int{width}
		if layers > 0 && width%layers == 0 {
			f.Row = []int{layers, width / layers}
		}
		return f, f.Header.Check()
	}
	if f.Row = []int{layers, topK}; width != layers*topK { // the model does not say, or says something else
		f.Row = []int{width}
	}
	if f.Experts = known.Experts; f.Experts > 0 || f.DType == "" {
		f.DType = TypeOf(f.Experts)
	}
	return f, f.learn(file, number)
}

// learn looks at the first rows, which have numbers of so many bytes.
func (f *Form) learn(file []byte, number int) error {
	if err := f.Header.Check(); err != nil {
		return err
	}
	data := make([]byte, len(file)/number*f.DType.Bytes())
	why := change(data, file, f.DType.Bytes(), number)
	if why == "" {
		why = f.Judge(data)
	}
	if why != "" {
		return fmt.Errorf("of its rows, %s", why)
	}
	f.route(data)
	return nil
}

// route notes which layers have experts.
func (f *Form) route(data []byte) {
	if len(f.Row) != 2 {
		return
	}
	f.Routed = make([]bool, f.Row[0])
	width := f.RowBytes() / f.Row[0]
	for at := 0; at+width <= len(data); at += width {
		if layer := at / width % f.Row[0]; !zero(data[at : at+width]) {
			f.Routed[layer] = true
		}
	}
}

// Masks is the form of sampling masks.
var Masks = Form{Header: channel.Header{Name: channel.SamplingMask, DType: channel.I32, Ragged: true, Align: channel.Sampled}, Wire: Lists}

func zero(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}

// Reason is why the rows of an answer are dropped.
type Reason string

// Reasons.
const (
	Missing   Reason = "missing"
	Odd       Reason = "form"
	Count     Reason = "count"
	Beyond    Reason = "range"
	Negative  Reason = "negative"
	Zeros     Reason = "zeros"
	Repeated  Reason = "repeated"
	Tokenless Reason = "token"
	NoRoom    Reason = "memory"
	Cancelled Reason = "cancelled"
)

// String says in words why rows are dropped.
func (r Reason) String() string {
	switch r {
	case Missing:
		return "it has none"
	case Odd:
		return "they have another type or shape than the answer to the probe had, or are no base64"
	case Count:
		return "they are more or fewer than one for each pass"
	case Beyond:
		return "they have an id beyond the last one"
	case Negative:
		return "they have an id below 0"
	case Zeros:
		return "they have a layer without an expert"
	case Repeated:
		return "they have an expert twice in a layer"
	case Tokenless:
		return "a sampled token is not in its own mask"
	case NoRoom:
		return "there is no room for them in memory"
	case Cancelled:
		return "their rollout ended while they waited for room in memory"
	}
	return string(r)
}
