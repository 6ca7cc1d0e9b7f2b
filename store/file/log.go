package file

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/trace"
)

// Append adds lines to the event log with one write. When it returns without an
// error they survive the end of this process. An error is final for the log.
func (s *Store) Append(lines [][]byte) error {
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	if s.logErr != nil {
		return s.logErr
	}
	chunk := joinLines(lines)
	if len(chunk) == 0 {
		return nil
	}
	_, err := s.log.Write(chunk)
	if err == nil && s.options.Always {
		err = s.log.Sync()
	}
	if err != nil {
		s.logErr = fmt.Errorf("store: the event log takes no more: %w", err)
		// A half-written line would be found and cut at the next Open; this only tidies up.
		_ = s.log.Truncate(s.logSize)
		return s.logErr
	}
	s.logSize += int64(len(chunk))
	return nil
}

func joinLines(lines [][]byte) []byte {
	if len(lines) == 1 {
		return lines[0]
	}
	n := 0
	for _, l := range lines {
		n += len(l)
	}
	chunk := make([]byte, 0, n)
	for _, l := range lines {
		chunk = append(chunk, l...)
	}
	return chunk
}

// openLog verifies the log, cuts a torn last line and opens it for appending.
func (s *Store) openLog() error {
	path := filepath.Join(s.dir, trace.FileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.log = f
	end, err := s.verifyLog(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if info.Size() > end {
		if err := f.Truncate(end); err != nil {
			return fmt.Errorf("store: cutting the torn last line: %w", err)
		}
		if s.options.Always {
			if err := f.Sync(); err != nil {
				return fmt.Errorf("store: %w", err)
			}
		}
	}
	s.logSize = end
	return nil
}

// verifyLog reads the whole log and returns where its last complete line ends.
func (s *Store) verifyLog(f *os.File) (end int64, err error) {
	r, err := trace.NewReader(bufio.NewReaderSize(f, 1<<20))
	if torn(err) {
		return 0, fmt.Errorf("%w: the run ended before it began; start it anew under another name", err)
	}
	if err != nil {
		return 0, err
	}
	s.scored, s.scoredOf = map[live.RolloutID]bool{}, map[loop.GroupID][]live.RolloutID{}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) || torn(err) {
			break
		}
		if err != nil {
			return 0, err
		}
		s.ended = rec.Note == trace.NoteEnd
		if err := s.noteScored(rec, r.Header.Loop.Policy == loop.PolicyReplay); err != nil {
			return 0, err
		}
	}
	s.header, s.scoredOf = r.Header, nil
	s.resumed = *r.Encoder()
	s.seq = s.resumed.Seq()
	return r.Offset(), nil
}

// noteScored keeps which attempts of groups that live have been scored, by a record of the log.
func (s *Store) noteScored(rec trace.Record, replays bool) error {
	switch {
	case rec.Event != nil && rec.Event.Kind == loop.RolloutScored:
		id := live.RolloutID{Group: rec.Event.Group, Sample: rec.Event.Sample, Attempt: rec.Event.Attempt}
		s.scored[id] = true
		s.scoredOf[id.Group] = append(s.scoredOf[id.Group], id)
	case rec.Action != nil && (rec.Action.Kind == loop.GroupEnded || rec.Action.Kind == loop.GroupTrained && !replays):
		for _, id := range s.scoredOf[rec.Action.Group] {
			delete(s.scored, id)
		}
		delete(s.scoredOf, rec.Action.Group)
	case rec.Note == live.NoteDiscarded:
		var id live.RolloutID
		if err := json.Unmarshal(rec.Data, &id); err != nil {
			return fmt.Errorf("store: line %d: note %s: %w", rec.Line, rec.Note, err)
		}
		delete(s.scored, id)
	}
	return nil
}

func torn(err error) bool {
	var at *trace.Error
	return errors.As(err, &at) && at.Torn
}
