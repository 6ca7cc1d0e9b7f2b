//go:build unix

package private

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const another = 65534

// What another user made is refused, and so is a link of another's to what is ours. What is ours, or was just made, is fine.
func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root alone can make what belongs to another user")
	}
	folder := t.TempDir()
	ours, theirs, link := filepath.Join(folder, "a", "ours"), filepath.Join(folder, "theirs"), filepath.Join(folder, "link")
	for range 2 { // the second time it is there
		if err := Make(ours); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(ours); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made with mode %v, %v", info.Mode(), err)
	}
	if err := os.Mkdir(theirs, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ours, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{theirs, link} {
		if err := os.Lchown(path, another, another); err != nil {
			t.Skip("this file system gives nothing away: ", err)
		}
		err := Make(path)
		if err == nil || !strings.Contains(err.Error(), path+" belongs to another user (uid 65534)") {
			t.Errorf("%s of another user: %v", path, err)
		}
	}
	if left, err := os.ReadDir(theirs); err != nil || len(left) > 0 {
		t.Errorf("left %v in it, %v", left, err)
	}
}
