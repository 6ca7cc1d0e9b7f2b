package doctored

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository, from this package.
const root = "../../../.."

// least is how many builds a check has to find at least.
const least = 36

func builds(t *testing.T) []Build {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAll(t *testing.T) {
	all := builds(t)
	if len(all) < least {
		t.Errorf("%d builds, want at least %d", len(all), least)
	}
	titles, again := map[string]string{}, 0
	for i, b := range all {
		number, name, _ := strings.Cut(b.Name, "-")
		if number != fmt.Sprintf("%04d", i+1) || name == "" {
			t.Errorf("%s is build %d: want NNNN-name, numbered from 0001 without a gap", b.Name, i+1)
		}
		if other := titles[b.Title]; other != "" {
			t.Errorf("%s and %s have one title", other, b.Name)
		}
		titles[b.Title] = b.Name
		if strings.HasPrefix(name, "redteam-") {
			again++
		}
		for _, file := range b.Files {
			if strings.HasSuffix(file, "_test.go") || !strings.HasSuffix(file, ".go") || strings.HasPrefix(file, "cmd/") {
				t.Errorf("%s changes %s: want production code", b.Name, file)
			}
		}
	}
	if again != 3 {
		t.Errorf("%d builds take out the fix of an earlier find, want 3", again)
	}
}

func TestParse(t *testing.T) {
	const whole = "Title\n\nPromise: one\ntwo.\nBreaks: three.\nNeeds: four.\n\ndiff --git a/x.go b/x.go\n--- a/x.go\n+++ b/x.go\n@@ -1 +1 @@\n-a\n+b\n"
	b, err := parse("0001-x", whole)
	if err != nil {
		t.Fatal(err)
	}
	if b.Title != "Title" || b.Promise != "one two." || b.Breaks != "three." || b.Needs != "four." || !slices.Equal(b.Files, []string{"x.go"}) {
		t.Errorf("%+v", b)
	}
	for _, without := range []string{"Promise: one\ntwo.\n", "Breaks: three.\n", "Needs: four.\n", "diff --git a/x.go b/x.go\n", "+++ b/x.go\n", "Title"} {
		if _, err := parse("0001-x", strings.Replace(whole, without, "", 1)); err == nil {
			t.Errorf("a patch without %q is taken", without)
		}
	}
}

// Every patch fits the code as it is, and leaves files that parse.
func TestOverlay(t *testing.T) {
	for _, b := range builds(t) {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			o, err := b.Overlay(root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Replace) != len(b.Files) {
				t.Errorf("%d files are replaced, want the %d of the patch", len(o.Replace), len(b.Files))
			}
			for from, to := range o.Replace {
				before, err := os.ReadFile(from)
				if err != nil {
					t.Fatal(err)
				}
				after, err := os.ReadFile(to)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Equal(before, after) {
					t.Errorf("%s is as before", from)
				}
				if _, err := parser.ParseFile(token.NewFileSet(), to, after, parser.SkipObjectResolution); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestOverlayRefuses(t *testing.T) {
	b := builds(t)[0]
	folder := t.TempDir()
	if _, err := b.Overlay(root, folder); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Overlay(root, folder); err == nil {
		t.Error("a folder that is in use is taken")
	}
	bad := b
	bad.Patch = strings.Replace(b.Patch, "\n-", "\n- no such line", 1)
	if _, err := bad.Overlay(root, t.TempDir()); err == nil {
		t.Error("a patch that does not fit is applied")
	}
}

// Every doctored package builds. It takes minutes, for each patch rebuilds what it touches.
func TestBuilds(t *testing.T) {
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("HEADWAY_LONG is not set")
	}
	for _, b := range builds(t) {
		t.Run(b.Name, func(t *testing.T) {
			folder := t.TempDir()
			o, err := b.Overlay(root, folder)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			document := filepath.Join(folder, "overlay.json")
			if err := os.WriteFile(document, text, 0o600); err != nil {
				t.Fatal(err)
			}
			arguments := []string{"build", "-overlay", document}
			for _, file := range b.Files {
				arguments = append(arguments, "./"+path.Dir(file))
			}
			build := exec.Command("go", arguments...)
			build.Dir = root
			if said, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}
