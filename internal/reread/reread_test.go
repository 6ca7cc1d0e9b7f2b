package reread

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A file that has changed is read again, after a while; one that is broken leaves the value before.
func TestChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string) {
		aside := path + ".new"
		if err := os.WriteFile(aside, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(aside, path); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		read := func() (string, error) {
			reads++
			text, err := os.ReadFile(path)
			if err == nil && string(text) == "broken" {
				err = errors.New("it is broken")
			}
			return string(text), err
		}
		var log []string
		logf := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
		if _, err := New("the file", read, logf, path); err == nil {
			t.Fatal("a file that is not there was read")
		}
		write("one")
		reads = 0
		v, err := New("the file", read, logf, path)
		if err != nil || v.Get() != "one" {
			t.Fatalf("%q, %v", v.Get(), err)
		}
		write("two")
		if got := v.Get(); got != "one" {
			t.Errorf("%q at once: it looks every time", got)
		}
		time.Sleep(Every)
		if got := v.Get(); got != "two" {
			t.Errorf("%q after a change", got)
		}
		time.Sleep(Every)
		if v.Get(); reads != 2 {
			t.Errorf("%d reads, want one for each change", reads)
		}
		write("broken")
		for range 3 {
			time.Sleep(Every)
			if got := v.Get(); got != "two" {
				t.Errorf("%q, want what was before the broken one", got)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(Every)
		if got := v.Get(); got != "two" {
			t.Errorf("%q, want what was before the file went", got)
		}
		write("three")
		time.Sleep(Every)
		if got := v.Get(); got != "three" {
			t.Errorf("%q after the repair", got)
		}
		if len(log) != 4 || !strings.Contains(log[1], "it is broken") || slices.ContainsFunc(log, func(line string) bool { return !strings.HasPrefix(line, "the file has changed") }) {
			t.Errorf("the log is %q, want a line for each change", log)
		}
	})
}

// A file that cannot be read for a moment, for want of descriptors say, is tried again though it changes no more.
func TestPassingFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		failing := false
		read := func() (string, error) {
			if failing {
				return "", &os.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
			}
			text, err := os.ReadFile(path)
			return string(text), err
		}
		v, err := New("the file", read, nil, path)
		if err == nil {
			err = os.WriteFile(path, []byte("another"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		failing = true
		time.Sleep(Every)
		if got := v.Get(); got != "one" {
			t.Errorf("%q", got)
		}
		failing = false
		time.Sleep(Every)
		if got := v.Get(); got != "another" {
			t.Errorf("%q: the change is not seen any more", got)
		}
	})
}
