package tfevents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

// series reads a file whole: values by tag, in order, and the errors on the way.
func series(data []byte) (values map[string][]float64, steps []int64, failures []error) {
	r := NewReader(bytes.NewReader(data))
	values = map[string][]float64{}
	for {
		event, err := r.Next()
		if errors.Is(err, io.EOF) {
			return values, steps, failures
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, s := range event.Scalars {
			values[s.Tag] = append(values[s.Tag], s.Value)
			steps = append(steps, event.Step)
		}
	}
}

// The files are of three libraries (testdata/generate.py): simple values and tensors.
func TestLibraries(t *testing.T) {
	files, err := filepath.Glob("testdata/events.out.tfevents.*")
	if err != nil || len(files) < 3 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		values, _, failures := series(data)
		if len(failures) > 0 {
			t.Errorf("%s: %v", file, failures)
		}
		for tag, want := range map[string][]float64{"timing/step": {1.5, 2.5, 3.5, 4.5}, "async/staleness_mean": {0, 0.25, 0.5, 0.75}} {
			if !reflect.DeepEqual(values[tag], want) {
				t.Errorf("%s: %s = %v, want %v", file, tag, values[tag], want)
			}
		}
		if doubles := values["double"]; doubles != nil && math.Abs(doubles[3]-0.1*3) > 1e-16 {
			t.Errorf("%s: a double is %.17g", file, doubles[3])
		}
		if not := values["async/nan"]; not != nil && !math.IsNaN(not[0]) {
			t.Errorf("%s: not a number is %g", file, not[0])
		}
	}
}

func TestWriterReadsBack(t *testing.T) {
	directory := t.TempDir()
	now := time.Unix(1700000000, 500e6)
	w, err := Create(directory, ".0", now)
	if err != nil {
		t.Fatal(err)
	}
	for step := int64(0); step < 3; step++ {
		err := w.Write(now.Add(time.Duration(step)*time.Second), step, []Scalar{{"a/b", float64(step) / 2}, {"c", math.Inf(1)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if second, err := Create(directory, ".0", now); err != nil {
		t.Error(err)
	} else if err := second.Close(); err != nil {
		t.Error(err)
	}
	files, _ := filepath.Glob(filepath.Join(directory, "events.out.tfevents.1700000000.*.0"))
	if len(files) != 1 {
		t.Fatal(files)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	values, steps, failures := series(data)
	if len(failures) > 0 || !reflect.DeepEqual(values["a/b"], []float64{0, 0.5, 1}) || !math.IsInf(values["c"][2], 1) {
		t.Errorf("read back: %v, %v", values, failures)
	}
	if !reflect.DeepEqual(steps, []int64{0, 0, 1, 1, 2, 2}) {
		t.Errorf("steps %v", steps)
	}
	first, err := NewReader(bytes.NewReader(data)).Next()
	if err != nil || first.FileVersion != "brain.Event:2" || first.WallTime != 1700000000.5 {
		t.Errorf("the first event is %+v, %v", first, err)
	}
}

func written(t testing.TB) []byte {
	t.Helper()
	var to bytes.Buffer
	w, err := NewWriter(&to, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	for step := int64(0); step < 3; step++ {
		if err := w.Write(time.Unix(2+step, 0), step, []Scalar{{"tag", float64(step)}}); err != nil {
			t.Fatal(err)
		}
	}
	return to.Bytes()
}

func TestTorn(t *testing.T) {
	data := written(t)
	for n := range data {
		values, _, failures := series(data[:n])
		if len(values["tag"]) > 2 || len(failures) > 1 || len(failures) == 1 && !errors.Is(failures[0], ErrTorn) {
			t.Fatalf("%d bytes: %v, %v", n, values, failures)
		}
	}
}

func TestDamage(t *testing.T) {
	data := written(t)
	first := headBytes + int(binary.LittleEndian.Uint64(data)) + checksumBytes
	damaged := bytes.Clone(data)
	damaged[first+headBytes] ^= 1 // the second event's data
	values, _, failures := series(damaged)
	if len(values["tag"]) != 2 || len(failures) != 1 || !errors.Is(failures[0], ErrDamaged) {
		t.Errorf("damaged data: %v, %v", values, failures)
	}
	damaged = bytes.Clone(data)
	damaged[first] ^= 1 // the second event's length
	values, _, failures = series(damaged)
	if len(values["tag"]) != 0 || len(failures) != 1 || !errors.Is(failures[0], ErrLost) {
		t.Errorf("a damaged length: %v, %v", values, failures)
	}
}

// A length that no file has is not believed.
func TestHugeLength(t *testing.T) {
	var head []byte
	head = binary.LittleEndian.AppendUint64(head, 1<<40)
	head = binary.LittleEndian.AppendUint32(head, checksum(head))
	_, _, failures := series(append(head, 1, 2, 3))
	if len(failures) != 1 || !errors.Is(failures[0], ErrTorn) {
		t.Errorf("failures: %v", failures)
	}
}

func TestHalf(t *testing.T) {
	for bits, want := range map[uint16]float64{0x3c00: 1, 0xc000: -2, 0x0001: math.Ldexp(1, -24), 0x7c00: math.Inf(1), 0x3555: 0.333251953125} {
		if got := half(bits); got != want {
			t.Errorf("%#x is %g, want %g", bits, got, want)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(written(f))
	files, _ := filepath.Glob("testdata/events.out.tfevents.*")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, failures := series(data)
		if len(failures) > len(data)/headBytes+1 {
			t.Errorf("%d failures in %d bytes", len(failures), len(data))
		}
		var event Event
		_ = decodeEvent(data, &event) // without the frame's checksum, which no fuzzer guesses
	})
}

// halves is a file whose disk is full in the middle of one write.
type halves struct {
	bytes.Buffer
	writes, full int
}

func (h *halves) Write(b []byte) (int, error) {
	if h.writes++; h.writes == h.full {
		n, _ := h.Buffer.Write(b[:len(b)/2])
		return n, errors.New("no space left on device")
	}
	return h.Buffer.Write(b)
}

// An event that was written in part goes on where it stopped, whether it is given again or another comes.
func TestAFullDisk(t *testing.T) {
	for _, again := range []bool{true, false} {
		file := &halves{full: 3}
		w, err := NewWriter(file, time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		for step := int64(1); step <= 4; step++ {
			err := w.Write(time.Unix(1, 0), step, []Scalar{{"loss", 1}})
			if (err != nil) != (step == 2) {
				t.Errorf("step %d: %v", step, err)
			}
			if err != nil && again {
				if err := w.Write(time.Unix(1, 0), step, []Scalar{{"loss", 1}}); err != nil {
					t.Error(err)
				}
			}
		}
		r, found := NewReader(&file.Buffer), []int64{}
		for {
			event, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("again %t: %v after %v", again, err, found)
			}
			if len(event.Scalars) > 0 {
				found = append(found, event.Step)
			}
		}
		if !slices.Equal(found, []int64{1, 2, 3, 4}) {
			t.Errorf("again %t: steps %v", again, found)
		}
	}
}
