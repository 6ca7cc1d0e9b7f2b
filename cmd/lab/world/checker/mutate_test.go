package checker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// recording is a history that a test changes.
type recording struct {
	tb    testing.TB
	lines []history.Line
	log   []string // without checksums
	dir   string
}

// record returns the clean history, which a test may change.
func record(tb testing.TB) *recording {
	tb.Helper()
	lines, ending := read(tb, "testdata/clean")
	text, err := readLog(ending)
	if err != nil {
		tb.Fatal(err)
	}
	r := &recording{tb: tb, lines: lines, dir: tb.TempDir()}
	for line := range strings.Lines(string(text)) {
		r.log = append(r.log, line[:strings.LastIndex(line, `,"crc":`)])
	}
	if err := os.CopyFS(filepath.Join(r.dir, "weights"), os.DirFS(filepath.Join(ending.Dir, "weights"))); err != nil {
		tb.Fatal(err)
	}
	return r
}

// check writes the log with its checksums, and checks.
func (r *recording) check() []Violation {
	r.tb.Helper()
	var text []byte
	sum := uint32(0)
	for _, line := range r.log {
		sum = crc32.Update(sum, castagnoli, []byte(line))
		text = fmt.Appendf(text, "%s,\"crc\":\"%08x\"}\n", line, sum)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "trace.ndjson"), text, 0o600); err != nil {
		r.tb.Fatal(err)
	}
	return Check(sampler, r.lines, history.Ending{Dir: r.dir, Finished: true})
}

// find is the place of the nth exchange, from 0, whose path has a part and whose answer has a status and a part.
func (r *recording) find(path string, status int, part string, nth int) int {
	r.tb.Helper()
	for i := range r.lines {
		x := r.lines[i].Exchange
		if x == nil || x.Status != status || !strings.Contains(x.Path, path) || !bytes.Contains(x.Response, []byte(part)) {
			continue
		}
		if nth--; nth < 0 {
			return i
		}
	}
	r.tb.Fatalf("no exchange with %s, %d and %q", path, status, part)
	return 0
}

// exchange returns the exchange of a line, with bodies of its own.
func (r *recording) exchange(i int) *history.Exchange {
	x := *r.lines[i].Exchange
	x.Request, x.Response = slices.Clone(x.Request), slices.Clone(x.Response)
	r.lines[i].Exchange = &x
	return &x
}

// again puts a copy of a line behind it, and returns its exchange.
func (r *recording) again(i int) *history.Exchange {
	r.lines = slices.Insert(r.lines, i+1, r.lines[i])
	return r.exchange(i + 1)
}

// answer changes an answer.
func (r *recording) answer(i int, old, to string) {
	r.tb.Helper()
	x := r.exchange(i)
	if !bytes.Contains(x.Response, []byte(old)) {
		r.tb.Fatalf("the answer of line %d has no %q: %.300s", i, old, x.Response)
	}
	x.Response = bytes.Replace(x.Response, []byte(old), []byte(to), 1)
}

// request changes a request.
func (r *recording) request(i int, old, to string) {
	r.tb.Helper()
	x := r.exchange(i)
	if !bytes.Contains(x.Request, []byte(old)) {
		r.tb.Fatalf("the request of line %d has no %q: %.300s", i, old, x.Request)
	}
	x.Request = bytes.Replace(x.Request, []byte(old), []byte(to), 1)
}

// tensor returns the bytes of a tensor in a batch, to be changed.
func (r *recording) tensor(i int, name string) []byte {
	r.tb.Helper()
	raw := r.exchange(i).Response
	length := binary.LittleEndian.Uint64(raw)
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(raw[8:8+length], &header); err != nil {
		r.tb.Fatal(err)
	}
	at := header[name].Offsets
	return raw[8+int(length)+at[0] : 8+int(length)+at[1]]
}

// entry is the place of the nth line of the log, from 0, with all of some parts.
func (r *recording) entry(nth int, parts ...string) int {
	r.tb.Helper()
	for i, line := range r.log {
		if slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			continue
		}
		if nth--; nth < 0 {
			return i
		}
	}
	r.tb.Fatalf("the log has no line with %q", parts)
	return 0
}

// edit changes a line of the log.
func (r *recording) edit(i int, old, to string) {
	r.tb.Helper()
	if !strings.Contains(r.log[i], old) {
		r.tb.Fatalf("line %d of the log has no %q: %s", i, old, r.log[i])
	}
	r.log[i] = strings.Replace(r.log[i], old, to, 1)
}

// cut takes an event out of the log, with its actions, and numbers those after it anew.
func (r *recording) cut(i int) {
	var gone int64
	if _, err := fmt.Sscanf(r.log[i], `{"n":%d,`, &gone); err != nil {
		r.tb.Fatal(err)
	}
	kept := r.log[:0]
	for _, line := range r.log {
		n, rest := int64(0), ""
		if _, err := fmt.Sscanf(line, `{"n":%d,`, &n); err != nil {
			r.tb.Fatal(err)
		}
		_, rest, _ = strings.Cut(line, ",")
		switch note := strings.HasPrefix(rest, `"note"`); {
		case n == gone && !note:
			continue
		case n >= gone && n > 0:
			n--
		}
		kept = append(kept, fmt.Sprintf(`{"n":%d,%s`, n, rest))
	}
	r.log = kept
}

// finish is the place of the nth finish that was counted, and the attempt's place in a line of the log.
func (r *recording) finish(nth int) (line int, id attemptID, parts []string) {
	line = r.find("/finish", 200, `"counted":true`, nth)
	id, _ = parseID(strings.Split(r.lines[line].Exchange.Path, "/")[4])
	parts = []string{fmt.Sprintf(`"g":%d,`, id.group)}
	if id.sample > 0 {
		parts = append(parts, fmt.Sprintf(`"s":%d,`, id.sample))
	}
	return line, id, append(parts, fmt.Sprintf(`"attempt":%d,`, id.attempt))
}

// says reports whether the rule found something.
func says(found []Violation, rule string) bool {
	return slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == rule })
}

// slow makes all times of the history longer.
func (r *recording) slow(by int64) {
	for i := range r.lines {
		r.lines[i].AtNS *= by
		if x := r.lines[i].Exchange; x != nil {
			r.exchange(i).BeganNS *= by
		}
	}
	for i, line := range r.log {
		at := strings.Index(line, `,"t":`)
		if at < 0 || strings.Contains(line, `"note"`) {
			continue
		}
		var t int64
		if _, err := fmt.Sscanf(line[at:], `,"t":%d`, &t); err != nil {
			r.tb.Fatal(err)
		}
		r.log[i] = strings.Replace(line, fmt.Sprintf(`,"t":%d`, t), fmt.Sprintf(`,"t":%d`, t*by), 1)
	}
}

// gone puts a call behind a claim that says that it is over.
func (r *recording) gone(id attemptID, call string) {
	r.tb.Helper()
	i := r.find("/rollouts/claim", 200, fmt.Sprintf(`"id":"g%d-s%d-a%d"`, id.group, id.sample, id.attempt), 0)
	x := r.again(i)
	x.Path, x.Status, x.Response = fmt.Sprintf("/api/v1/rollouts/g%d-s%d-a%d/%s", id.group, id.sample, id.attempt, call), 410, []byte(`{"error":{"code":"expired","message":"over"}}`)
}

// late has an attempt end otherwise than scored, so many seconds later.
func (r *recording) late(parts []string, seconds int64, kind, reason string) {
	r.tb.Helper()
	i := r.entry(0, append(parts, `"e":"rollout-scored"`)...)
	at := strings.Index(r.log[i], `,"t":`)
	var t int64
	if _, err := fmt.Sscanf(r.log[i][at:], `,"t":%d`, &t); err != nil {
		r.tb.Fatal(err)
	}
	r.edit(i, fmt.Sprintf(`,"t":%d`, t), fmt.Sprintf(`,"t":%d`, t+seconds*second))
	r.edit(i, `"e":"rollout-scored"`, `"e":"`+kind+`"`)
	r.log[i] += `,"reason":"` + reason + `"`
}

// fault has a plane stand still from a line on, for so many seconds.
func (r *recording) fault(plane string, line int, seconds int64) {
	at := r.lines[line].AtNS
	r.lines = slices.Insert(r.lines, line+1, history.Line{AtNS: at, Host: plane, Kind: "fault", Text: "freeze for a while"})
	r.lines = append(r.lines, history.Line{AtNS: at + seconds*second, Host: plane, Kind: "healed", Text: "freeze"})
}
