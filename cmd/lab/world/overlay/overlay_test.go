package overlay

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Every edit finds its text in the library of the Go that runs the tests, and names files that are there.
func TestWrite(t *testing.T) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	path, err := Write(t.TempDir(), strings.TrimSpace(string(goroot)), map[string]string{"/original.go": "/patched.go"})
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &overlay)
	}
	if err != nil {
		t.Fatal(err)
	}
	if overlay.Replace["/original.go"] != "/patched.go" {
		t.Error("the files that are handed over are missing")
	}
	for original, copy := range overlay.Replace {
		if _, err := os.Stat(copy); err != nil && copy != "/patched.go" {
			t.Errorf("%s: %v", original, err)
		}
	}
}
