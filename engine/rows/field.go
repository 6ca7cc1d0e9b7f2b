package rows

import "context"

// Field takes the text of one channel's rows, and makes rows of it. The last text of a stream counts.
type Field struct {
	form *Form
	key  []byte // the quoted key before the text
	// likely is how many rows are expected where the text does not say, most how many there may be.
	likely, most func() int
	discard      bool

	seen    bool
	problem Reason
	head    []byte // of a .npy file, while it is not whole
	number  int    // bytes of a number in the text; 0 before the first
	size    int    // bytes of the rows where the text says it, else -1
	memory
	carry   [4]byte // text of less than four letters
	carried int
	rest    [4]byte // the beginning of a number
	rested  int
	padded  bool // the text has come to its padding
	beside  bool // another field of the stream holds memory: this one does not wait for any, as in grow
}

// FieldOptions say what is expected of a field.
type FieldOptions struct {
	// Form of its rows; Wire is not Lists. Key is the name of the text in events.
	Form *Form
	Key  string
	// Likely is how many rows are expected, Most how many there may be. Both are asked when the text begins.
	Likely, Most func() int
	// Discard says that the rows are read past.
	Discard bool
}

// NewField returns a field that has nothing yet. Release comes at the end.
func NewField(o FieldOptions) *Field {
	return &Field{form: o.Form, key: []byte(`"` + o.Key + `"`), likely: o.Likely, most: o.Most, discard: o.Discard}
}

// Rows returns rows back to back, and how many they are. problem is why there are none, [Missing] where there was no
// text. They are valid until Release.
func (f *Field) Rows() (data []byte, rows int, problem Reason) {
	switch {
	case !f.seen:
		return nil, 0, Missing
	case f.problem != "":
		return nil, 0, f.problem
	}
	return f.data, len(f.data) / f.form.RowBytes(), ""
}

// open begins a text.
func (f *Field) open() {
	f.Release()
	f.seen, f.problem, f.head, f.number, f.size = true, "", f.head[:0], 0, -1
	f.carried, f.rested, f.padded = 0, 0, false
}

// fail drops the rows.
func (f *Field) fail(why Reason) {
	f.problem = why
	f.Release()
}

// feed decodes more of the text.
func (f *Field) feed(ctx context.Context, text []byte) {
	if f.discard || f.problem != "" {
		return
	}
	if f.carried > 0 {
		n := copy(f.carry[f.carried:], text)
		f.carried, text = f.carried+n, text[n:]
		if f.carried < len(f.carry) {
			return
		}
		f.carried = 0
		f.decode(ctx, f.carry[:])
	}
	whole := len(text) &^ 3
	f.decode(ctx, text[:whole])
	f.carried = copy(f.carry[:], text[whole:])
}

// close ends the text.
func (f *Field) close() {
	if f.discard || f.problem != "" {
		return
	}
	row := f.form.RowBytes()
	if f.carried > 0 || f.rested > 0 || f.number == 0 && f.form.Wire == Numpy || f.size >= 0 && len(f.data) != f.size || len(f.data)%row != 0 {
		f.fail(Odd)
	}
}
