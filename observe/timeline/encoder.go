package timeline

import (
	"bufio"
	"encoding/json"
	"io"
	"math"
	"strconv"

	"github.com/headway-rl/headway/loop"
)

// encoder writes trace events as a JSON object, an event a line. It keeps the first
// error of writing.
type encoder struct {
	w      *bufio.Writer
	line   []byte
	events int64
	open   bool // the arguments of an event are being written
	err    error
}

func newEncoder(w io.Writer) *encoder { return &encoder{w: bufio.NewWriterSize(w, 1<<16)} }

// begin writes what comes before the events. Viewers take times in microseconds and
// show them in milliseconds.
func (e *encoder) begin(title string) {
	name, err := json.Marshal(title)
	if err != nil {
		e.err = err
		return
	}
	e.line = append(e.line[:0], `{"displayTimeUnit":"ms","otherData":{"title":`...)
	e.line = append(e.line, name...)
	e.line = append(e.line, `},"traceEvents":[`...)
	e.flush()
}

// end writes what comes after them.
func (e *encoder) end() error {
	e.line = append(e.line[:0], "\n]}\n"...)
	e.flush()
	if e.err == nil {
		e.err = e.w.Flush()
	}
	return e.err
}

func (e *encoder) flush() {
	if e.err == nil {
		_, e.err = e.w.Write(e.line)
	}
}

// event begins an event of a phase: "X" a span, "i" an instant, "C" a counter, "M" a name,
// "s", "t" and "f" an arrow's start, middle and end.
func (e *encoder) event(phase string, pid int) {
	e.line = e.line[:0]
	if e.events > 0 {
		e.line = append(e.line, ',')
	}
	e.events++
	e.line = append(e.line, "\n{\"ph\":\""...)
	e.line = append(e.line, phase...)
	e.line = append(e.line, `","pid":`...)
	e.line = strconv.AppendInt(e.line, int64(pid), 10)
}

// micros writes a time in microseconds, exact to the nanosecond.
func (e *encoder) micros(key string, ns int64) {
	e.line = append(e.line, `,"`...)
	e.line = append(e.line, key...)
	e.line = append(e.line, `":`...)
	e.line = strconv.AppendInt(e.line, ns/1000, 10)
	if rest := ns % 1000; rest != 0 {
		e.line = append(e.line, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	}
}

func (e *encoder) thread(tid int) {
	e.line = append(e.line, `,"tid":`...)
	e.line = strconv.AppendInt(e.line, int64(tid), 10)
}

func (e *encoder) category(name string) {
	e.line = append(e.line, `,"cat":"`...)
	e.line = append(e.line, name...)
	e.line = append(e.line, '"')
}

func (e *encoder) span(pid, tid int, category string, from, to int64) {
	e.event("X", pid)
	e.thread(tid)
	e.micros("ts", from)
	e.micros("dur", to-from)
	e.category(category)
}

func (e *encoder) instant(pid, tid int, category string, at int64) {
	e.event("i", pid)
	e.thread(tid)
	e.micros("ts", at)
	e.category(category)
	e.line = append(e.line, `,"s":"p"`...)
}

func (e *encoder) counter(pid int, name string, at int64) {
	e.event("C", pid)
	e.micros("ts", at)
	e.nameText(name)
}

func (e *encoder) process(pid int, name string) {
	e.event("M", pid)
	e.nameText("process_name")
	e.args()
	e.argText("name", name)
	e.close()
	e.event("M", pid)
	e.nameText("process_sort_index")
	e.args()
	e.arg("sort_index", int64(pid))
	e.close()
}

func (e *encoder) track(pid, tid int, name string) {
	e.event("M", pid)
	e.thread(tid)
	e.nameText("thread_name")
	e.args()
	e.argText("name", name)
	e.close()
	e.event("M", pid)
	e.thread(tid)
	e.nameText("thread_sort_index")
	e.args()
	e.arg("sort_index", int64(tid))
	e.close()
}

// nameText names the event; names are this package's own and need no escapes.
func (e *encoder) nameText(name string) {
	e.line = append(e.line, `,"name":"`...)
	e.line = append(e.line, name...)
	e.line = append(e.line, '"')
}

// nameGroup names a rollout by its group, so that a viewer gives siblings one colour.
func (e *encoder) nameGroup(group loop.GroupID) {
	e.line = append(e.line, `,"name":"g`...)
	e.line = strconv.AppendInt(e.line, int64(group), 10)
	e.line = append(e.line, '"')
}

func (e *encoder) nameVersion(prefix string, version loop.Version) {
	e.line = append(e.line, `,"name":"`...)
	e.line = append(e.line, prefix...)
	e.line = strconv.AppendInt(e.line, int64(version), 10)
	e.line = append(e.line, '"')
}

// colours are names that chrome://tracing has colours for, told apart best when side by side. Perfetto
// colours by the name of a span alone.
var colours = [...]string{"rail_response", "rail_idle", "rail_load", "rail_animation", "detailed_memory_dump", "background_memory_dump", "olive", "thread_state_runnable"}

// colour gives a span the colour of a version: the rollouts that began under it, the step that made it and
// its syncs look alike, and those of the next version different.
func (e *encoder) colour(version loop.Version) {
	n := loop.Version(len(colours))
	e.line = append(e.line, `,"cname":"`...)
	e.line = append(e.line, colours[(version%n+n)%n]...)
	e.line = append(e.line, '"')
}

// arrow writes one end of an arrow, or a place through which it leads. It belongs to the innermost span of
// the track at that time ("bp":"e"), so it is written after that span where both begin at once.
func (e *encoder) arrow(phase, name string, id int64, m moment) {
	e.event(phase, m.pid)
	e.thread(m.tid)
	e.micros("ts", m.at)
	e.category("arrow")
	e.nameText(name)
	e.line = append(e.line, `,"id":`...)
	e.line = strconv.AppendInt(e.line, id, 10)
	if phase == "f" {
		e.line = append(e.line, `,"bp":"e"`...)
	}
	e.close()
}

// args begins the event's arguments.
func (e *encoder) args() {
	e.line = append(e.line, `,"args":{`...)
	e.open = true
}

func (e *encoder) key(name string) {
	if e.line[len(e.line)-1] != '{' {
		e.line = append(e.line, ',')
	}
	e.line = append(e.line, '"')
	e.line = append(e.line, name...)
	e.line = append(e.line, `":`...)
}

func (e *encoder) arg(name string, value int64) {
	e.key(name)
	e.line = strconv.AppendInt(e.line, value, 10)
}

// argFloat leaves out what JSON has no number for.
func (e *encoder) argFloat(name string, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	e.key(name)
	e.line = strconv.AppendFloat(e.line, value, 'g', 9, 64)
}

func (e *encoder) argText(name, value string) {
	e.key(name)
	e.line = append(e.line, '"')
	e.line = append(e.line, value...)
	e.line = append(e.line, '"')
}

// close ends the event.
func (e *encoder) close() {
	if e.open {
		e.line = append(e.line, '}')
		e.open = false
	}
	e.line = append(e.line, '}')
	e.flush()
}
