package enginetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// transcriptHead is the first line of a file that holds a conversation.
const transcriptHead = "headway conversation 1"

// lineBytesMax bounds one line of such a file.
const lineBytesMax = 64 << 20

// Transcript is a conversation with a server.
type Transcript struct {
	// Notes say what was recorded, one line each: the server and its version, the date.
	Notes []string
	// Exchanges in the order in which their requests came.
	Exchanges []Exchange
}

// Exchange is a request and its answer.
type Exchange struct {
	Method, Path string
	// At is when the request came, since the recorder was started; it is not kept in a file.
	At time.Duration
	// Body of the request; nil for none.
	Body []byte
	// Status and Header of the answer, 0 where none came; of the header only what says how to read it is kept.
	Status int
	Header http.Header
	// Pieces of the answer: events of a stream, each with the blank line that ends it, or one whole body.
	Pieces []Piece
	// End is how the answer ended.
	End End
}

// Piece is a part of an answer.
type Piece struct {
	// After the request came.
	After time.Duration
	Data  []byte
}

// End is how an answer ended.
type End string

// Ends. EndCut is a connection that the server broke, EndClient one that the client did.
const (
	EndRegular End = "end"
	EndCut     End = "cut"
	EndClient  End = "client"
)

// Stream reports whether the answer is a stream of events.
func (e Exchange) Stream() bool {
	return strings.HasPrefix(e.Header.Get("Content-Type"), "text/event-stream")
}

// Events are the data of an answer's events, without the mark of the stream's end.
func (e Exchange) Events() [][]byte {
	var events [][]byte
	for _, p := range e.Pieces {
		if data, ok := EventData(p.Data); ok && string(data) != "[DONE]" {
			events = append(events, data)
		}
	}
	return events
}

// EventData returns the data of one event of a stream; false for one without, such as a comment.
func EventData(event []byte) (data []byte, ok bool) {
	for line := range bytes.Lines(event) {
		line = bytes.TrimRight(line, "\r\n")
		rest, found := bytes.CutPrefix(line, []byte("data:"))
		if !found {
			continue
		}
		rest = bytes.TrimPrefix(rest, []byte(" "))
		if ok {
			data = append(append(data, '\n'), rest...)
		} else {
			data, ok = bytes.Clone(rest), true
		}
	}
	return data, ok
}

// Write writes the conversation as text: a request begins with >, its answer with <.
func (t *Transcript) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, transcriptHead)
	for _, note := range t.Notes {
		fmt.Fprintf(b, "# %s\n", strings.ReplaceAll(note, "\n", " "))
	}
	for _, e := range t.Exchanges {
		fmt.Fprintf(b, "\n> %s %s\n", e.Method, e.Path)
		if e.Body != nil {
			fmt.Fprintf(b, ">> %s\n", spell(e.Body, ""))
		}
		if e.Status != 0 {
			fmt.Fprintf(b, "< %d\n", e.Status)
		}
		for _, name := range keptHeaders {
			if value := e.Header.Get(name); value != "" {
				fmt.Fprintf(b, "< %s: %s\n", name, value)
			}
		}
		for _, p := range e.Pieces {
			fmt.Fprintf(b, "<+%d %s\n", p.After.Milliseconds(), spell(p.Data, e.terminator()))
		}
		fmt.Fprintf(b, "< %s\n", e.End)
	}
	return b.Flush()
}

// terminator is what ends a piece and is left out of the file where it is there.
func (e Exchange) terminator() string {
	if e.Stream() {
		return "\n\n"
	}
	return ""
}

// spell writes bytes on one line: as they are where that can be read back, else quoted.
func spell(data []byte, terminator string) string {
	text, ended := strings.CutSuffix(string(data), terminator)
	if !ended || text == "" || text[0] == '"' || strings.ContainsAny(text, "\r\n") {
		return strconv.Quote(string(data))
	}
	return text
}

// unspell reads what spell has written.
func unspell(text, terminator string) ([]byte, error) {
	if !strings.HasPrefix(text, `"`) {
		return []byte(text + terminator), nil
	}
	plain, err := strconv.Unquote(text)
	return []byte(plain), err
}

// ReadTranscript reads a conversation.
func ReadTranscript(r io.Reader) (*Transcript, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineBytesMax)
	if !lines.Scan() || lines.Text() != transcriptHead {
		return nil, errors.Join(fmt.Errorf("not a conversation: its first line is %.40q, not %q", lines.Text(), transcriptHead), lines.Err())
	}
	t := &Transcript{}
	for number := 2; lines.Scan(); number++ {
		if err := t.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if n := len(t.Exchanges); n > 0 && t.Exchanges[n-1].End == "" {
		return nil, errors.New("the last answer has no end: the file is cut off")
	}
	return t, lines.Err()
}

// line takes in one line.
func (t *Transcript) line(text string) error {
	mark, rest, _ := strings.Cut(text, " ")
	if text == "" {
		return nil
	}
	switch mark {
	case "#":
		t.Notes = append(t.Notes, rest)
		return nil
	case ">":
		method, path, ok := strings.Cut(rest, " ")
		if !ok {
			return fmt.Errorf("%q is no request: want > METHOD PATH", text)
		}
		t.Exchanges = append(t.Exchanges, Exchange{Method: method, Path: path, Header: http.Header{}})
		return nil
	}
	if len(t.Exchanges) == 0 {
		return fmt.Errorf("%.40q stands before the first request", text)
	}
	return t.Exchanges[len(t.Exchanges)-1].line(mark, rest)
}

// line takes in a line of a request's rest or of its answer.
func (e *Exchange) line(mark, rest string) error {
	var err error
	switch {
	case mark == ">>":
		e.Body, err = unspell(rest, "")
	case mark == "<" && rest != "" && rest[0] >= '0' && rest[0] <= '9':
		e.Status, err = strconv.Atoi(rest)
	case mark == "<" && strings.Contains(rest, ": "):
		name, value, _ := strings.Cut(rest, ": ")
		e.Header.Set(name, value)
	case mark == "<":
		e.End = End(rest)
		if e.End != EndRegular && e.End != EndCut && e.End != EndClient {
			err = fmt.Errorf("%q is no end: want %s, %s or %s", rest, EndRegular, EndCut, EndClient)
		}
	case strings.HasPrefix(mark, "<+"):
		var ms int
		if ms, err = strconv.Atoi(mark[2:]); err != nil {
			break
		}
		p := Piece{After: time.Duration(ms) * time.Millisecond}
		p.Data, err = unspell(rest, e.terminator())
		e.Pieces = append(e.Pieces, p)
	default:
		err = fmt.Errorf("%.40q begins with no mark of a conversation", mark+" "+rest)
	}
	return err
}

// Load reads a conversation from a file.
func Load(path string) (*Transcript, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := ReadTranscript(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Save writes a conversation to a file, whole or not at all.
func (t *Transcript) Save(path string) error {
	var text bytes.Buffer
	if err := t.Write(&text); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
