package pages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A browser is opened at a display of this machine alone, and BROWSER chooses which.
func TestBrowser(t *testing.T) {
	for _, test := range []struct {
		system      string
		environment []string
		want        []string
	}{
		{"linux", nil, nil},
		{"linux", []string{"DISPLAY=:0"}, []string{"xdg-open"}},
		{"linux", []string{"WAYLAND_DISPLAY=wayland-0"}, []string{"xdg-open"}},
		{"darwin", nil, []string{"open"}},
		{"darwin", []string{"SSH_CONNECTION=a b"}, nil},
		{"linux", []string{"DISPLAY=:10", "SSH_TTY=/dev/pts/1"}, nil},
		{"linux", []string{"BROWSER=firefox --new-tab %s:w3m"}, []string{"firefox", "--new-tab", "%s"}},
		{"linux", []string{"DISPLAY=:0", "BROWSER=none"}, nil},
		{"linux", []string{"BROWSER=firefox", "SSH_CLIENT=a"}, nil},
	} {
		getenv := func(name string) string {
			for _, variable := range test.environment {
				if value, is := strings.CutPrefix(variable, name+"="); is {
					return value
				}
			}
			return ""
		}
		if got := Browser(getenv, test.system); !slices.Equal(got, test.want) {
			t.Errorf("%s %v: %q, want %q", test.system, test.environment, got, test.want)
		}
	}
}

// The arguments of a browser, which other users of the machine see, have no token. Its owner alone can read the page.
func TestOpenHidesTheToken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	seen := filepath.Join(t.TempDir(), "seen")
	if err := os.Mkdir(seen, 0o700); err != nil {
		t.Fatal(err)
	}
	browser := filepath.Join(t.TempDir(), "browser")
	if err := os.WriteFile(browser, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := "http://127.0.0.1:7070/#/?token=SECRET"
	remove, err := Open([]string{browser, "--page=%s"}, link)
	if err != nil {
		t.Fatal(err)
	}
	made, _ := filepath.Glob(filepath.Join(os.TempDir(), "*", "open.html"))
	if len(made) != 1 {
		t.Fatalf("pages are %q, want one", made)
	}
	for _, path := range []string{made[0], filepath.Dir(made[0])} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v, want it for its owner alone", path, info.Mode(), err)
		}
	}
	if page, err := os.ReadFile(made[0]); err != nil || !strings.Contains(string(page), link) {
		t.Errorf("the page is %q, %v", page, err)
	}
	if given := withPage([]string{"--page=%s"}, "file://"+made[0]); len(given) != 1 || strings.Contains(given[0], "SECRET") {
		t.Errorf("the browser is given %q", given)
	}
	remove()
	if _, err := os.Stat(filepath.Dir(made[0])); err == nil {
		t.Error("the page is left behind")
	}
	if _, err := Open([]string{filepath.Join(seen, "gone")}, link); err == nil {
		t.Error("a browser that is not there opens")
	}
}
