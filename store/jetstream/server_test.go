package jetstream

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A server that cannot begin says so at once: until then nobody can connect to the one before it, nor is there another
// try.
func TestServerThatCannotBegin(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600)) // where its files would be
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, _, err := newServer(Options{Dir: dir}, nil)
		if err == nil {
			s.Shutdown()
			t.Fatal("a server began without a directory")
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v to say %v", took, err)
		}
	})
}
