package taskset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"strings"
	"unicode/utf8"
)

// Load reads a set. A mistake in the files is an error that is a *[Mistakes], which has all of them;
// a set with a mistake is not played.
func Load(opt Options) (*Set, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	opt = opt.withDefaults()
	l := &loader{opt: opt, ids: map[uint64]int32{}, seed: maphash.MakeSeed(), digest: sha256.New(), instructions: sha256.New(), sides: map[content]int32{}}
	l.set.decoder = newDecoder(&opt)
	for i, paths := range [2][]string{opt.Paths, opt.HeldOutPaths} {
		l.evaluation = i == 1
		for _, path := range paths {
			l.path(path)
		}
	}
	l.finish()
	if err := l.found.err(); err != nil {
		return nil, err
	}
	l.set.digest, l.set.instructions = hex.EncodeToString(l.digest.Sum(nil)), hex.EncodeToString(l.instructions.Sum(nil))
	return &l.set, nil
}

// loader reads files into a set.
type loader struct {
	opt   Options
	set   Set
	found found
	// evaluation: the files that are read are for evaluation alone.
	evaluation bool
	// ids are the places of tasks by a hash of their ids: what the hash alone says is looked up.
	ids  map[uint64]int32
	seed maphash.Seed
	// sides has the contents of each task, where a split needs them, with the first place of it.
	sides  map[content]int32
	digest hash.Hash
	// instructions is of the prompts of folders, which digest leaves out: the notes of runs have it so.
	instructions hash.Hash
	// arena is where rows are kept, bytes how many there are.
	arena []byte
	bytes int
	// had counts the rows with each part, leaks those whose prompts end with an assistant's message.
	had   [partCount]int
	rows  int
	leaks int
}

// full: no more is to be read.
func (l *loader) full() bool { return l.bytes > l.opt.SetMax }

// report notes a mistake of the file that is being read.
func (l *loader) report(line int, format string, args ...any) {
	file := len(l.set.files) - 1
	l.found.add(file, Mistake{l.set.files[file], line, fmt.Sprintf(format, args...)})
}

// row takes a line of JSON, or a row as one. raw is copied.
func (l *loader) row(raw []byte, line int) {
	l.rows++
	object, ok := l.check(raw, line)
	if !ok {
		return
	}
	if l.bytes += len(object); l.bytes > l.opt.SetMax {
		if l.bytes-len(object) <= l.opt.SetMax {
			l.report(line, "the tasks are more than %d bytes together: want a smaller set, or a higher limit", l.opt.SetMax)
		}
		return
	}
	file := int32(len(l.set.files) - 1)
	e := entry{raw: l.keep(object), file: file, line: int32(line)}
	r := l.set.decoder.decode(e.raw, l.set.name(&e))
	for i, value := range r.values {
		if value != nil {
			l.had[i]++
		}
	}
	for _, p := range r.problems {
		if p.missing {
			l.found.miss(p.part, int(file), Mistake{l.set.files[file], line, p.text})
			continue
		}
		l.report(line, "%s", p.text)
	}
	if len(r.problems) == 0 {
		if r.leaks {
			l.leaks++
		}
		l.digest.Write(e.raw)
		l.take(e, &r.task)
	}
}

// check says what keeps a line from being an object.
func (l *loader) check(raw []byte, line int) (json.RawMessage, bool) {
	raw = bytes.TrimSpace(raw)
	if !utf8.Valid(raw) {
		at := 0
		for rest := raw; ; {
			r, size := utf8.DecodeRune(rest)
			if r == utf8.RuneError && size == 1 {
				break
			}
			rest, at = rest[size:], at+size
		}
		l.report(line, "byte %d is no UTF-8: want the file in UTF-8", at+1)
		return nil, false
	}
	if !json.Valid(raw) {
		l.report(line, "broken JSON: %s", whyInvalid(raw))
		return nil, false
	}
	if raw[0] != '{' {
		hint := ""
		if raw[0] == '[' {
			hint = "; a list of tasks is to be written with one task a line"
		}
		l.report(line, "this is %s: want an object%s", aKind(raw), hint)
		return nil, false
	}
	return raw, true
}

func whyInvalid(raw []byte) string {
	var any json.RawMessage
	err := json.Unmarshal(raw, &any)
	if syntax, ok := err.(*json.SyntaxError); ok {
		return fmt.Sprintf("%v at byte %d", err, syntax.Offset)
	}
	return fmt.Sprint(err)
}

// arenaSize is how much is asked for at once to keep rows in.
const arenaSize = 1 << 20

// keep copies a row to where it stays.
func (l *loader) keep(raw []byte) json.RawMessage {
	if len(raw) > arenaSize/4 {
		return bytes.Clone(raw)
	}
	if len(l.arena)+len(raw) > cap(l.arena) {
		l.arena = make([]byte, 0, arenaSize)
	}
	begin := len(l.arena)
	l.arena = append(l.arena, raw...)
	return l.arena[begin:len(l.arena):len(l.arena)]
}

// take adds a task that is right in itself: its id must be its own, and its side be found.
func (l *loader) take(e entry, t *Task) {
	s := &l.set
	place := int32(len(s.entries))
	h := maphash.String(l.seed, t.ID)
	for {
		other, taken := l.ids[h]
		if !taken {
			l.ids[h] = place
			break
		}
		if o := &s.entries[other]; s.make(other).ID == t.ID {
			l.report(int(e.line), "the id %.80q is also that of %s: want one for each task", t.ID, s.name(o))
			return
		}
		h++ // another id with the same hash
	}
	s.entries = append(s.entries, e)
	s.tested.add(t.Test != "", t)
	s.answered.add(len(t.Answer) > 0 && string(t.Answer) != "null", t)
	if l.heldOut(place, t) {
		s.heldOut = append(s.heldOut, place)
		return
	}
	s.training = append(s.training, place)
	for len(s.levels) <= t.Level {
		s.levels = append(s.levels, nil)
	}
	s.levels[t.Level] = append(s.levels[t.Level], place)
}

// heldOut finds a task's side.
func (l *loader) heldOut(place int32, t *Task) bool {
	if len(l.opt.HeldOutPaths) == 0 {
		return l.opt.HeldOut > 0 && contentOf(t.Messages, t.Files).heldOutBy(l.opt.HeldOut)
	}
	c := contentOf(t.Messages, t.Files)
	first, there := l.sides[c]
	switch {
	case !there && !l.evaluation:
		l.sides[c] = place
	case there && l.evaluation:
		l.report(int(l.set.entries[place].line), "what the policy is given here is that of the training task at %s, too: a prompt is for one or the other", l.set.name(&l.set.entries[first]))
	}
	return l.evaluation
}

// finish checks the set as a whole.
func (l *loader) finish() {
	l.missing()
	s := &l.set
	if len(s.levels) == 0 {
		s.levels = [][]int32{nil}
	}
	if l.found.err() != nil {
		return
	}
	if len(s.training) == 0 {
		l.found.add(len(s.files), Mistake{Text: fmt.Sprintf("no task is left for training: all %d are held out", len(s.heldOut))})
	}
	if l.opt.HeldOut > 0 && len(s.heldOut) == 0 {
		s.warnings = append(s.warnings, fmt.Sprintf("no task of %d is held out by a share of %g: there is nothing to evaluate on", len(s.training), l.opt.HeldOut))
	}
	if l.leaks > 0 {
		s.warnings = append(s.warnings, fmt.Sprintf("the prompt of %d tasks ends with an assistant's message: the policy goes on after it; where that is the solution, it is given away", l.leaks))
	}
	if l.found.count > 0 || l.opt.Levels == 0 {
		return
	}
	for level := 1; level <= l.opt.Levels; level++ {
		if s.LevelLen(level) == 0 {
			l.found.add(len(s.files), Mistake{Text: fmt.Sprintf("the curriculum has %d levels, and no training task is of level %d: the highest is %d", l.opt.Levels, level, s.Levels())})
		}
	}
	never := s.LevelLen(0)
	for level := l.opt.Levels + 1; level <= s.Levels(); level++ {
		never += s.LevelLen(level)
	}
	if never > 0 {
		s.warnings = append(s.warnings, fmt.Sprintf("%d tasks are of no level from 1 to %d: the curriculum never plays them", never, l.opt.Levels))
	}
}

// missing makes one mistake of a field that no row has.
func (l *loader) missing() {
	for i := range l.had {
		p, of := &l.set.decoder.parts[i], &l.found.missing[i]
		switch {
		case l.had[i] > 0 || l.rows == 0:
		case of.count > 1:
			first := of.list[0]
			first.Line = 0
			first.Text = nowhere(first.Text)
			of.list, of.count = []placed{first}, 1
		case of.count == 0 && p.given && l.found.count == 0:
			r := l.set.decoder.decode(l.set.entries[0].raw, "")
			l.found.add(0, Mistake{l.set.files[0], 0, nowhere(r.lacks(i))})
		}
	}
}

// nowhere makes of what is said of one row what is true of all.
func nowhere(text string) string { return strings.Replace(text, "there is no", "no row has a", 1) }

// readAll reads a stream of at most limit bytes.
func readAll(r io.Reader, limit int) ([]byte, error) {
	all, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(all) > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return all, err
}
