package jetstream

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/storetest"
)

// damagedEnd is a run of 401 lines, with snapshots as of 201 and 301, whose writer was killed. Its log has lost all
// from the last line on that has a text.
func damagedEnd(t *testing.T, text string) (o Options, lines int64) {
	t.Helper()
	dir := t.TempDir()
	o = Options{Dir: filepath.Join(dir, "nats"), TracePath: filepath.Join(dir, trace.FileName), Run: "test", Logf: t.Logf}
	s := open(t, o)
	enc := begin(t, s)
	for range 3 {
		fill(t, s, enc, 100)
	}
	for i := range 100 {
		must(t, s.Append([][]byte{storetest.Event(enc, int64(1000+i))}))
	}
	lines = enc.Position().Line
	awaitMirror(s, lines)
	left := killed(t, dir)
	if !flipBit(t, left, text) {
		t.Fatal("the line is not on the disk")
	}
	o.Dir, o.TracePath = filepath.Join(left, "nats"), filepath.Join(left, trace.FileName)
	if _, err := opened(t, o); !errors.Is(err, ErrLogDamaged) {
		t.Fatalf("a log that has lost its end: %v", err)
	}
	return o, lines
}

// opened opens a store and makes it the run's writer.
func opened(t *testing.T, o Options) (*Store, error) {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		return nil, err
	}
	if _, _, err = s.Acquire(t.Context(), "a test"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// A log that has lost its end is written anew from its mirror: from the older of the two snapshots on, with the
// damaged one aside. What goes on after it reads as before.
func TestRestoreLog(t *testing.T) {
	o, lines := damagedEnd(t, `"t":1060`)
	restored, err := RestoreLog(t.Context(), o)
	must(t, err)
	if restored.End.Line != lines || restored.Had >= lines || restored.Had < 301 || restored.From != 201 {
		t.Errorf("restored %+v of %d lines", restored, lines)
	}
	if aside, err := os.ReadDir(restored.Aside); err != nil || len(aside) == 0 {
		t.Errorf("the damaged log: %v, %v", aside, err)
	}
	s, err := opened(t, o)
	must(t, err)
	line, _ := newestGood(t, s)
	checkWhole(t, s, line, lines)
	enc := trace.Resume(restored.End)
	for i := range 50 {
		must(t, s.Append([][]byte{storetest.Event(enc, int64(2000+i))}))
	}
	must(t, s.Close())
	s, err = opened(t, o)
	must(t, err)
	text := logText(t, s)
	must(t, s.Close())
	mirrored := mirrorText(t, o.TracePath)
	if !bytes.Equal(mirrored, text) || int64(bytes.Count(mirrored, newline)) != lines+50 {
		t.Errorf("log and mirror differ: %d and %d bytes", len(text), len(mirrored))
	}
	if _, err := RestoreLog(t.Context(), o); !errors.Is(err, ErrLogWhole) {
		t.Errorf("a log that is whole: %v", err)
	}
}

// A mirror from which the log cannot be written is refused, and nothing is changed.
func TestRestoreLogRefuses(t *testing.T) {
	skipShort(t)
	cut := func(keep int) func(text []byte) []byte {
		return func(text []byte) []byte { return bytes.Join(bytes.SplitAfter(text, newline)[:keep], nil) }
	}
	for name, c := range map[string]struct {
		lost   string
		change func(text []byte) []byte
		want   string
	}{
		"damaged":                    {`"t":1060`, func(text []byte) []byte { return bytes.Replace(text, []byte(`"t":1070`), []byte(`"t":1071`), 1) }, "it is damaged itself"},
		"shorter than the log":       {`"t":1060`, cut(340), "still shows line 361"},
		"shorter than its snapshots": {`"t":50,`, cut(290), "still shows line 301"},
		"another run's": {`"t":1060`, func([]byte) []byte {
			text, enc := storetest.Header(t)
			for i := range 500 {
				text = append(text, storetest.Event(enc, int64(i))...)
			}
			return text
		}, "it is another log's"},
		"missing": {`"t":1060`, nil, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := damagedEnd(t, c.lost)
			data, err := os.ReadFile(o.TracePath)
			must(t, err)
			text := mirrorText(t, o.TracePath)
			if must(t, os.Remove(o.TracePath)); c.change != nil {
				must(t, os.WriteFile(o.TracePath, c.change(text), 0o600))
			}
			if _, err := RestoreLog(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it says %v, want %q", err, c.want)
			}
			if aside, _ := filepath.Glob(o.Dir + "-damaged-log-*"); len(aside) > 0 {
				t.Errorf("the log was moved to %v", aside)
			}
			must(t, os.WriteFile(o.TracePath, data, 0o600))
			_, err = RestoreLog(t.Context(), o)
			must(t, err)
		})
	}
}

// The last message alone is damaged, in a store that was closed in order: no start gets as far as the mirror.
func TestRestoreLogsLastMessage(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: filepath.Join(dir, "nats"), TracePath: filepath.Join(dir, trace.FileName), Run: "test", Logf: t.Logf}
	s := open(t, o)
	enc := begin(t, s)
	for i := range 20 {
		must(t, s.Append([][]byte{storetest.Event(enc, int64(1000+i))}))
	}
	must(t, s.Close())
	if !flipBit(t, dir, `"t":1019`) {
		t.Fatal("the line is not on the disk")
	}
	if _, err := opened(t, o); !errors.Is(err, ErrLogDamaged) {
		t.Fatalf("a log without its last message: %v", err)
	}
	_, err := RestoreLog(t.Context(), o)
	must(t, err)
	s, err = opened(t, o)
	must(t, err)
	defer s.Close()
	if text := logText(t, s); int64(bytes.Count(text, newline)) != enc.Position().Line {
		t.Errorf("the log has %d lines of %d", bytes.Count(text, newline), enc.Position().Line)
	}
	if line, _, err := s.ReadSnapshot(math.MaxInt64); line != 0 || err != nil {
		t.Errorf("a snapshot as of line %d: %v", line, err)
	}
}
