package calls

// Status is what became of one attempt to call a tool.
type Status int

// The statuses, in the order in which they are listed.
const (
	// OK: a call of a tool that was offered.
	OK Status = iota
	// Unclosed: the response ended within the call.
	Unclosed
	// InvalidJSON: arguments, or the call, that are no JSON.
	InvalidJSON
	// MissingName: a call that names no tool.
	MissingName
	// Malformed: the frame is broken, or the arguments are no object.
	Malformed
	// UnknownTool: a call that is well formed, of a tool that was not offered.
	UnknownTool
	statuses
)

// String is the word by which a status is counted.
func (s Status) String() string {
	return [statuses]string{"ok", "unclosed", "invalid_json", "missing_name", "malformed", "unknown_tool"}[s]
}

// Statuses lists all of them.
func Statuses() []Status {
	all := make([]Status, statuses)
	for i := range all {
		all[i] = Status(i)
	}
	return all
}

// Counts are attempts by their status. The zero value counts none.
type Counts [statuses]int

// Total is how many attempts there were.
func (c Counts) Total() int {
	n := 0
	for _, k := range c {
		n += k
	}
	return n
}

// Delta is what has become known of one call.
type Delta struct {
	// Index numbers the calls that a response has begun, from 0.
	Index int
	// Name is not empty in the first delta of a call, and in no other. ID is the model's own word for the
	// call beside it, empty for none.
	Name, ID string
	// Arguments are the next piece of a text that is a JSON object once the call is complete.
	Arguments []byte
	// Broken takes the call back: it was none, and its text follows as text.
	Broken bool
}

// Out is what a piece of a response has brought. The zero value is nothing. Its slices may be cut to
// length 0 and handed on for the next piece.
type Out struct {
	Text, Reasoning []byte
	Deltas          []Delta
}

// Reset forgets what was brought and keeps the room.
func (o *Out) Reset() {
	o.Text, o.Reasoning, o.Deltas = o.Text[:0], o.Reasoning[:0], o.Deltas[:0]
}

func (o *Out) begin(index int, name, id string) {
	o.Deltas = append(o.Deltas, Delta{Index: index, Name: name, ID: id})
}

// arguments adds to the last delta where that is of the same call.
func (o *Out) arguments(index int) *[]byte {
	if n := len(o.Deltas); n > 0 && o.Deltas[n-1].Index == index && !o.Deltas[n-1].Broken {
		return &o.Deltas[n-1].Arguments
	}
	o.Deltas = append(o.Deltas, Delta{Index: index})
	return &o.Deltas[len(o.Deltas)-1].Arguments
}

func (o *Out) broken(index int) { o.Deltas = append(o.Deltas, Delta{Index: index, Broken: true}) }
