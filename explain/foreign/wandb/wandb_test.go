package wandb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// described reads a file whole: settings and rows as text, and the errors on the way.
func described(data []byte) (settings, rows []string, failures []error) {
	r, err := NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, nil, []error{err}
	}
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return settings, rows, failures
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, item := range record.Config {
			settings = append(settings, item.Key+"="+string(item.JSON))
		}
		if len(record.History) > 0 {
			row := fmt.Sprint(record.Step, record.HasStep)
			for _, item := range record.History {
				row += " " + item.Key + "=" + string(item.JSON)
			}
			rows = append(rows, row)
		}
	}
}

// The files are the library's own, of several versions (testdata/generate.py).
func TestVersions(t *testing.T) {
	files, err := filepath.Glob("testdata/run-*.wandb")
	if err != nil || len(files) < 4 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		settings, rows, failures := described(data)
		if len(failures) > 0 {
			t.Errorf("%s: %v", file, failures)
		}
		all := strings.Join(settings, "\n")
		for _, want := range []string{"lr=1e-", "flag=true", "later=3", `trainer={"n_gpus_per_node"`} {
			if !strings.Contains(all, want) {
				t.Errorf("%s: no setting %s in\n%s", file, want, all)
			}
		}
		second := rows[1]
		for _, want := range []string{"timing_s/step=22.5", "timing_s/param_sync=0.5", "count=2", "nan=NaN", "inf=Infinity", "_step=2"} {
			if !strings.Contains(second, want) {
				t.Errorf("%s: no %s in %s", file, want, second)
			}
		}
		if !strings.Contains(second, "nested.a=4") && !strings.Contains(strings.ReplaceAll(second, " ", ""), `nested={"a":4`) {
			t.Errorf("%s: no nested value in %s", file, second)
		}
		last := rows[len(rows)-1]
		if !strings.Contains(last, "count=5") || !strings.Contains(last, "_step=5") {
			t.Errorf("%s: the last row is %s", file, last)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A file may end anywhere: what is whole is read, and the end is said to be torn.
func TestTorn(t *testing.T) {
	data := read(t, "run-0.22.3.wandb")
	_, whole, _ := described(data)
	before := 0
	for n := headerBytes; n < len(data); n++ {
		_, rows, failures := described(data[:n])
		if len(rows) < before || len(rows) > len(whole) {
			t.Fatalf("%d bytes have %d rows, %d had %d", n, len(rows), n-1, before)
		}
		before = len(rows)
		for _, err := range failures {
			if !errors.Is(err, ErrTorn) {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
		if len(failures) > 1 {
			t.Fatalf("%d bytes: %v", n, failures)
		}
	}
}

// Damage costs the block that it is in, no more: reading goes on at the next.
func TestDamage(t *testing.T) {
	data := read(t, "run-0.31.0.wandb")
	_, whole, _ := described(data)
	data[len(data)/2] ^= 1 // within the long row's text
	_, rows, failures := described(data)
	if len(failures) == 0 || !errors.Is(failures[0], ErrDamaged) {
		t.Errorf("failures: %v", failures)
	}
	if len(rows) < len(whole)-1 || rows[len(rows)-1] != whole[len(whole)-1] {
		t.Errorf("%d rows of %d are left, the last %.80s", len(rows), len(whole), rows[len(rows)-1])
	}
}

func TestHeader(t *testing.T) {
	for _, text := range []string{"", ":W&", "no run file", ":W&B\xe1\xbe\x01rest"} {
		if _, err := NewReader(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken as a run file", text)
		}
	}
}

// Newer versions of the library write values in binary.
func TestBinaryItems(t *testing.T) {
	for _, c := range []struct{ bytes, want string }{
		{"\x0a\x01k\x18\x00", "null"},
		{"\x0a\x01k\x20\x01", "true"},
		{"\x0a\x01k\x28\x05", "-3"},
		{"\x0a\x01k\x31\x00\x00\x00\x00\x00\x00\xf8\x3f", "1.5"},
		{"\x0a\x01k\x31\x00\x00\x00\x00\x00\x00\xf0\x7f", "Infinity"},
		{"\x0a\x01k\x3a\x02hi", `"hi"`},
	} {
		item, err := decodeItem([]byte(c.bytes))
		if err != nil || item.Key != "k" || string(item.JSON) != c.want {
			t.Errorf("%q: %s = %s, %v, want %s", c.bytes, item.Key, item.JSON, err, c.want)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, version := range []string{"0.16.6", "0.18.7", "0.22.3"} {
		data, err := os.ReadFile("testdata/run-" + version + ".wandb")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, failures := described(data) // it ends, and panics at nothing
		if len(failures) > len(data)+1 {
			t.Errorf("%d failures in %d bytes", len(failures), len(data))
		}
	})
}

// FuzzDecode reads records without the frames' checksums, which no fuzzer guesses.
func FuzzDecode(f *testing.F) {
	data, err := os.ReadFile("testdata/run-0.22.3.wandb")
	if err != nil {
		f.Fatal(err)
	}
	frames, err := newFrames(bytes.NewReader(data))
	if err != nil {
		f.Fatal(err)
	}
	for {
		record, err := frames.next()
		if err != nil {
			break
		}
		f.Add(bytes.Clone(record))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Reader
		if known, err := r.decode(data); err != nil && known && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}
