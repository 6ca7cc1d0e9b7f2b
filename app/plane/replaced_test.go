package plane

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
)

// What a run keeps for itself and for others comes under its name by renaming: a reader never has half of it, and
// a process that dies in the middle leaves none. A file that is written in place would go through the link here.
func TestFilesOfARunAreReplaced(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cfg, err := config.LoadWith("")
	if err != nil {
		t.Fatal(err)
	}
	j := &record.Record{App: &app.Process{}, Parts: &parts.Parts{Cfg: cfg, Dir: dir}}
	for name, write := range map[string]func() error{
		origin.AddressFile: (&Plane{Record: j, name: "r", listener: listener}).writeAddress,
		parts.ConfigFile:   j.WriteConfig,
	} {
		path, behind := filepath.Join(dir, name), filepath.Join(t.TempDir(), name)
		if err := os.Symlink(behind, path); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(behind); err == nil {
			t.Errorf("%s is written in place", name)
		}
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
