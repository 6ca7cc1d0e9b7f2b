package vllm

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
)

// routingWidth is the bytes of a row: 4 layers, 2 experts each.
const routingWidth = 4 * 2

// routingAnswer is a recorded answer with its rows.
type routingAnswer struct {
	status int
	tokens []int
	finish string
	// field tells rows that are none of any length from an answer that has no field of them.
	field bool
	rows  [][]byte
	// chunks are the events of a stream, with is the one that had the rows, -1 for none.
	chunks, with int
}

// routingAnswers reads testdata/routing.txt by the ids of its requests.
func routingAnswers(t *testing.T) map[string]routingAnswer {
	t.Helper()
	transcript, err := enginetest.Load(filepath.Join("testdata", routingFile))
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]routingAnswer{}
	for _, e := range transcript.Exchanges {
		if e.Path != pathGenerate {
			continue
		}
		var asked struct {
			ID string `json:"request_id"`
		}
		if err := json.Unmarshal(e.Body, &asked); err != nil {
			t.Fatal(err)
		}
		parts := e.Events()
		if !e.Stream() {
			parts = [][]byte{bytes.Join(pieces(e), nil)}
		}
		a := routingAnswer{status: e.Status, with: -1, chunks: len(parts)}
		for i, part := range parts {
			a.add(t, i, part)
		}
		answers[asked.ID] = a
	}
	return answers
}

func pieces(e enginetest.Exchange) (all [][]byte) {
	for _, p := range e.Pieces {
		all = append(all, p.Data)
	}
	return all
}

// add reads a chunk, or a whole answer.
func (a *routingAnswer) add(t *testing.T, i int, part []byte) {
	t.Helper()
	var said struct {
		Choices []struct {
			Tokens []int   `json:"token_ids"`
			Finish string  `json:"finish_reason"`
			Rows   *string `json:"routed_experts"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(part, &said); err != nil {
		t.Fatal(err)
	}
	for _, c := range said.Choices {
		a.tokens, a.finish = append(a.tokens, c.Tokens...), c.Finish
		if c.Rows != nil {
			a.field, a.with, a.rows = true, i, npyRows(t, *c.Rows)
		}
	}
}

var npyHead = regexp.MustCompile(`^{'descr': '\|u1', 'fortran_order': False, 'shape': \((\d+), 4, 2\), } *\n$`)

// npyRows reads a .npy file of bytes in base64, and nothing else that such a file can hold.
func npyRows(t *testing.T, text string) (rows [][]byte) {
	t.Helper()
	file, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(file) < 10 || !bytes.HasPrefix(file, []byte("\x93NUMPY\x01\x00")) {
		t.Fatalf("no .npy file of version 1: %v: %.40q", err, file)
	}
	size := 10 + int(binary.LittleEndian.Uint16(file[8:]))
	head := npyHead.FindSubmatch(file[10:size])
	if head == nil {
		t.Fatalf("its head is %q", file[10:size])
	}
	n, _ := strconv.Atoi(string(head[1]))
	if data := file[size:]; len(data) != n*routingWidth {
		t.Fatalf("%d rows in %d bytes", n, len(data))
	}
	for i := range n {
		rows = append(rows, file[size+i*routingWidth:][:routingWidth])
	}
	return rows
}

// TestRecordedRouting holds what vLLM 0.30.0 says about routed experts: it is what an adapter has to live with.
func TestRecordedRouting(t *testing.T) {
	answers := routingAnswers(t)
	prompt := len(routingPrompt)
	for _, c := range []struct {
		id     string
		finish string
		start  int
	}{
		{"whole", "length", 0}, {"cached", "length", 0}, {"streamed", "length", 0}, {"start", "length", 60},
		{"start-at-the-end", "length", prompt}, {"stop", "stop", 0}, {"aborted-whole", "abort", 0},
		{"unswitched", "length", 0}, {"switched", "length", 0}, {"stale", "length", 0}, {"fresh", "length", 0},
	} {
		a := answers[c.id]
		if want := prompt + len(a.tokens) - 1 - c.start; !a.field || len(a.rows) != want || a.finish != c.finish {
			t.Errorf("%s: %d tokens, %d rows, ends by %q: want %d rows, %q", c.id, len(a.tokens), len(a.rows), a.finish, want, c.finish)
		}
		for i, row := range a.rows {
			checkRow(t, c.id, i, row)
		}
	}
	if a := answers["start-beyond"]; a.status != 400 {
		t.Errorf("a start beyond the prompt is answered by %d", a.status)
	}
	if a := answers["streamed"]; a.with != a.chunks-1 || a.chunks < 3 {
		t.Errorf("of %d chunks, chunk %d has the rows: want the last", a.chunks, a.with)
	}
	// Neither its rows nor that it has ended: a stream that is aborted stops without a word.
	if a := answers["aborted-streamed"]; a.field || a.finish != "" || len(a.tokens) < 10 {
		t.Errorf("an aborted stream: %+v", a)
	}
	if a := answers["aborted-early"]; a.field || a.finish != "abort" || len(a.tokens) != 0 {
		t.Errorf("aborted before its first pass: %+v", a)
	}
}

// checkRow holds that experts are there and distinct, and that the dense layer has zeros.
func checkRow(t *testing.T, id string, i int, row []byte) {
	t.Helper()
	for layer := range 4 {
		a, b := row[2*layer], row[2*layer+1]
		if layer == 0 && (a != 0 || b != 0) || layer > 0 && a == b || a > 7 || b > 7 {
			t.Fatalf("%s: row %d is %v", id, i, row)
		}
	}
}

// TestRecordedRoutingAgrees compares answers to the same prompt: which rows are those of other answers.
func TestRecordedRoutingAgrees(t *testing.T) {
	answers := routingAnswers(t)
	same := func(a, b string, from, to int) (n int) {
		x, y := answers[a].rows, answers[b].rows
		for i := from; i < min(to, len(x), len(y)); i++ {
			if bytes.Equal(x[i], y[i]) {
				n++
			}
		}
		return n
	}
	prompt := len(routingPrompt)
	for _, id := range []string{"cached", "streamed", "aborted-whole"} {
		if n := same("whole", id, 0, prompt+11); n != prompt+11 {
			t.Errorf("whole and %s have %d rows in common: want %d", id, n, prompt+11)
		}
	}
	for i, row := range answers["start"].rows {
		if !bytes.Equal(row, answers["whole"].rows[60+i]) {
			t.Errorf("row %d of the answer from 60 on is not that of the whole", i)
		}
	}
	// The weights changed under one answer: its rows are the old model's up to one, and so are the tokens up to that.
	before, after := answers["unswitched"], answers["switched"]
	at := 0
	for at < len(before.rows) && bytes.Equal(before.rows[at], after.rows[at]) {
		at++
	}
	if at < prompt+9 || at > len(before.rows)-10 || same("unswitched", "switched", at, len(before.rows)) > (len(before.rows)-at)/4 {
		t.Errorf("the answer under two weights leaves that under one at row %d of %d", at, len(before.rows))
	}
	if old := at - prompt + 1; !slices.Equal(before.tokens[:old], after.tokens[:old]) || slices.Equal(before.tokens, after.tokens) {
		t.Errorf("rows change at %d, and tokens are %v and %v", at, before.tokens, after.tokens)
	}
	// The cache was kept: the full blocks of the prompt have the rows of the old model, until it is dropped.
	full := prompt / 32 * 32
	if n := same("unswitched", "stale", 0, full); n != full {
		t.Errorf("%d of %d rows in cached blocks are the old model's", n, full)
	}
	for _, c := range []struct {
		id   string
		from int
	}{{"stale", full}, {"fresh", 0}} {
		if n := same("unswitched", c.id, c.from, prompt); n > (prompt-c.from)/4 {
			t.Errorf("%s: %d of %d rows that are computed anew are the old model's", c.id, n, prompt-c.from)
		}
	}
}
