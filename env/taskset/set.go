package taskset

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Set has tasks in the order of their files and lines, which are numbered from 1: the prompt
// numbers of a run. It does not change and is safe for concurrent use. Rows are kept as they were read and made into a
// Task when one is asked for. So a set takes little more memory than its files have bytes.
type Set struct {
	decoder  decoder
	files    []string
	entries  []entry
	training []int32
	heldOut  []int32
	// levels has the training tasks of each level, the first for level 0, which is none.
	levels   [][]int32
	warnings []string
	digest   string
	// instructions is beside digest for prompts that have files of their own.
	instructions string
	tested       Having
	answered     Having
}

// Having says how many tasks of a set have something, held out ones too, and which is the first that has not.
type Having struct {
	// Tasks is the number of those that have it.
	Tasks int
	// Lacks is the number of those that have not, and First the id of the first of them, empty for none.
	Lacks int
	First string
}

func (h *Having) add(has bool, t *Task) {
	switch {
	case has:
		h.Tasks++
		return
	case h.Lacks == 0:
		h.First = t.ID
	}
	h.Lacks++
}

// entry is a task as it was read: a row, or a folder's task as a whole.
type entry struct {
	raw  json.RawMessage
	task *Task
	file int32
	line int32
}

// Len is the number of training tasks: set prompts.count to it, so that every pass plays each once.
func (s *Set) Len() int { return len(s.training) }

// HeldOutLen is the number of tasks for evaluation.
func (s *Set) HeldOutLen() int { return len(s.heldOut) }

// HeldOut returns a task for evaluation, from 0 to HeldOutLen less one.
func (s *Set) HeldOut(i int) *Task { return s.make(s.heldOut[i]) }

// Levels is the highest level of a training task, 0 where none has one.
func (s *Set) Levels() int { return len(s.levels) - 1 }

// LevelLen is the number of training tasks of a level; of level 0 those without one.
func (s *Set) LevelLen(level int) int {
	if level < 0 || level >= len(s.levels) {
		return 0
	}
	return len(s.levels[level])
}

// Tested says which tasks have a Test.
func (s *Set) Tested() Having { return s.tested }

// Answered says which tasks have an Answer other than null.
func (s *Set) Answered() Having { return s.answered }

// Warnings are oddities of the set that do not prevent playing it.
func (s *Set) Warnings() []string { return slices.Clone(s.warnings) }

// Digest is the SHA-256 of all tasks in their order, for a run to notice that its tasks were changed. It leaves out the
// instruction.md of folders, which Instructions has.
func (s *Set) Digest() string { return s.digest }

// Instructions is the SHA-256 of every instruction.md in the order of the tasks; of none where no task is a folder.
func (s *Set) Instructions() string { return s.instructions }

// At returns the training task of a prompt's number, from 1, at a level. All rollouts of a group,
// and any retry, get the same one. With level 0 the numbers go through the whole set, with another
// through the tasks of that level, and begin again behind the last. A number below 1, or a level
// that no task has, panics: Options.Levels makes sure of it.
func (s *Set) At(prompt int64, level int) *Task { return s.make(s.index(prompt, level)) }

// index is the place among all tasks of what At returns.
func (s *Set) index(prompt int64, level int) int32 {
	of := s.training
	if level != 0 {
		of = nil
		if level > 0 && level < len(s.levels) {
			of = s.levels[level]
		}
	}
	if prompt < 1 || len(of) == 0 {
		panic(fmt.Sprintf("taskset: there is no task with number %d at level %d: numbers begin at 1, and training tasks have levels up to %d", prompt, level, s.Levels()))
	}
	return of[uint64(prompt-1)%uint64(len(of))]
}

// make makes the task of an entry. Callers get one of their own.
func (s *Set) make(i int32) *Task {
	e := &s.entries[i]
	if e.task != nil {
		made := *e.task
		made.Files, made.Hidden, made.Fields = maps.Clone(made.Files), maps.Clone(made.Hidden), maps.Clone(made.Fields)
		return &made
	}
	r := s.decoder.decode(e.raw, s.name(e))
	if len(r.problems) > 0 {
		panic(fmt.Sprintf("taskset: %s was right when it was read and is not any more: %s", s.name(e), r.problems[0].text))
	}
	r.task.Fields = map[string]json.RawMessage{}
	members(e.raw, func(name []byte, value json.RawMessage) bool {
		r.task.Fields[string(name)] = value
		return true
	})
	return &r.task
}

// name is what a task without an id is called: its file and line.
func (s *Set) name(e *entry) string {
	if e.line == 0 {
		return s.files[e.file]
	}
	return fmt.Sprintf("%s:%d", s.files[e.file], e.line)
}

// content names what the policy is given: the chat without a system message that it begins with,
// and the files. Tasks with the same content are on the same side of a split, whatever else differs.
type content [16]byte

func contentOf(messages []json.RawMessage, files map[string][]byte) content {
	h := sha256.New()
	write := func(b []byte) {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	for i, m := range messages {
		role := unquote(member(m, []string{"role"}))
		if i == 0 && len(messages) > 1 && (string(role) == "system" || string(role) == "developer") {
			continue
		}
		said := member(m, []string{"content"})
		if said != nil && said[0] == '"' {
			said = unquote(said)
		}
		write(role)
		write(said)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		write([]byte(name))
		write(files[name])
	}
	var c content
	copy(c[:], h.Sum(nil))
	return c
}

// heldOutBy says on which side of a split with this share a content is: a function of both alone,
// so that what is held out stays so when tasks are added, reordered or given other ids.
func (c content) heldOutBy(share float64) bool {
	return float64(binary.LittleEndian.Uint64(c[:8])>>11)/(1<<53) < share
}
