package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readEvents reads all events that a reader has.
func readEvents(from io.Reader) (events []string, err error) {
	r := NewEventReader(from, &Request{MaxTokens: 8})
	for {
		data, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
}

var plainFieldName = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)

// plainEvents reads events the plain way: all lines first.
func plainEvents(text string) (events []string) {
	var data []string
	lines := strings.Split(strings.TrimPrefix(text, byteOrderMark), "\n")
	for _, line := range lines[:len(lines)-1] {
		line = strings.TrimSuffix(line, "\r")
		if name, _, _ := strings.Cut(line, ":"); !plainFieldName.MatchString(name) {
			return events
		}
		if line == "" {
			if joined := strings.Join(data, "\n"); joined != "" {
				events = append(events, joined)
			}
			data = nil
		} else if value, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return events
}

func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
		err  error
	}{
		"one":                  {"data: {}\n\n", []string{"{}"}, io.EOF},
		"none":                 {"", nil, io.EOF},
		"no space":             {"data:x\n\n", []string{"x"}, io.EOF},
		"two spaces":           {"data:  x\n\n", []string{" x"}, io.EOF},
		"CRLF":                 {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}, io.EOF},
		"several lines":        {"data: a\ndata: b\n\n", []string{"a\nb"}, io.EOF},
		"other fields":         {": ping\n\nevent: e\nid: 1\nretry: 5\ndata: a\n\n", []string{"a"}, io.EOF},
		"without data":         {"event: e\n\ndata:\n\n\n\n", nil, io.EOF},
		"no blank line at end": {"data: a\n\ndata: b\n", []string{"a"}, io.ErrUnexpectedEOF},
		"half a line at end":   {"data: a\n\nda", []string{"a"}, io.ErrUnexpectedEOF},
		"no stream":            {"<html>busy</html>\n", nil, io.ErrUnexpectedEOF},
		"a mark at first":      {"\uFEFFdata: a\n\ndata: b\n\n", []string{"a", "b"}, io.EOF},
		"nothing but a mark":   {"\uFEFF", nil, io.EOF},
		"an unknown field":     {"data: a\n\nx-trace: 7\nx\ndata: b\n\n", []string{"a", "b"}, io.ErrUnexpectedEOF},
		"a mark later":         {"data: a\n\n\uFEFFdata: b\n\ndata: c\n\n", []string{"a"}, io.ErrUnexpectedEOF},
		"two marks":            {"\uFEFF\uFEFFdata: a\n\ndata: b\n\n", nil, io.ErrUnexpectedEOF},
		"a space before data":  {"data: a\n\n data: b\n\ndata: c\n\n", []string{"a"}, io.ErrUnexpectedEOF},
		"an object on its own": {"data: a\n\n{\"error\":\"busy\"}\n\ndata: [DONE]\n\n", []string{"a"}, io.ErrUnexpectedEOF},
	} {
		events, err := readEvents(strings.NewReader(c.text))
		if !slices.Equal(events, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", name, events, err)
		}
	}
	if _, err := readEvents(strings.NewReader("error: {\"message\":\"full\"}\n\n")); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("a field named error: %v", err)
	}
	if _, err := readEvents(strings.NewReader("{\"error\":\"busy\"}")); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a reply that is no stream: %v", err)
	}
}

// Events are the same however the bytes come in, and however long their lines are.
func TestEventsInPieces(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var text strings.Builder
		end := []string{"\n", "\r\n"}[draw.IntN(2)]
		for range draw.IntN(20) {
			for range 1 + draw.IntN(2) {
				fmt.Fprintf(&text, "data: %s%s", strings.Repeat("x", draw.IntN(3)*draw.IntN(20000)), end)
			}
			if draw.IntN(4) == 0 {
				text.WriteString(": comment" + end)
			}
			text.WriteString(end)
		}
		want := plainEvents(text.String())
		for _, from := range []io.Reader{
			strings.NewReader(text.String()),
			iotest.DataErrReader(strings.NewReader(text.String())),
			&pieces{rest: []byte(text.String()), draw: draw},
		} {
			if got, err := readEvents(from); !slices.Equal(got, want) || !errors.Is(err, io.EOF) {
				t.Fatalf("%d events, want %d; %v", len(got), len(want), err)
			}
		}
	}
}

// pieces reads a text in pieces of random sizes, 0 included.
type pieces struct {
	rest []byte
	draw *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.draw.IntN(5000))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// An event without an end costs as much memory as the longest that its request allows.
func TestAnEventWithoutEndIsRefused(t *testing.T) {
	for _, test := range []struct {
		request Request
		limit   int
	}{
		{Request{MaxTokens: 8}, 272 << 10},
		{Request{MaxTokens: 8, Prompt: make([]int32, 1024)}, 528 << 10},
		{Request{MaxTokens: 1 << 40}, 64 << 20},
	} {
		line := strings.NewReader("data: " + strings.Repeat("x", 1<<10))
		r := NewEventReader(io.MultiReader(line, endless{}), &test.request)
		_, err := r.Next()
		if !errors.Is(err, errEventTooLong) || !errors.Is(err, ErrLied) {
			t.Errorf("ended with %v", err)
		}
		if cap(r.buffer) != test.limit {
			t.Errorf("for %d tokens after %d it keeps %d bytes, want %d", test.request.MaxTokens, len(test.request.Prompt), cap(r.buffer), test.limit)
		}
	}
	lines := strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<10)+"\n", 1<<10))
	if _, err := readEvents(lines); !errors.Is(err, errEventTooLong) {
		t.Errorf("of many lines, ended with %v", err)
	}
}

// endless reads the same letter for ever.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("\uFEFFdata: a\n\n{}\n\ndata: b\n\n"))
	f.Add([]byte(": x\r\ndata:a\r\ndata: b\r\n\r\n\r\nid"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("error:")) || bytes.Contains(text, []byte("\nerror:")) {
			t.Skip()
		}
		want := plainEvents(string(text))
		whole, _ := readEvents(bytes.NewReader(text))
		single, _ := readEvents(iotest.OneByteReader(bytes.NewReader(text)))
		if !slices.Equal(whole, want) || !slices.Equal(single, want) {
			t.Errorf("%q: %q at once, %q byte by byte, want %q", text, whole, single, want)
		}
	})
}
