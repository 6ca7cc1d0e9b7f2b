//go:build unix

package file_test

import (
	"os"
	"strings"
	"testing"

	"github.com/headway-rl/headway/store/file"
)

// A run that another user could have filled with links is not gone on with.
func TestRunsOfOthersAreNotOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root alone can give a directory away")
	}
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	closeStore(t, s)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Skip("this file system gives nothing away: ", err)
	}
	if s, err := file.Open(dir, file.Options{}); err == nil || !strings.Contains(err.Error(), "belongs to another user (uid 65534)") {
		s.Close()
		t.Errorf("opened the run of another user: %v", err)
	}
}
