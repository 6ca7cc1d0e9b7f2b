package upstream

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// writeView writes a small model of one tensor.
func writeView(t testing.TB, dir string, version loop.Version) string {
	t.Helper()
	dir = filepath.Join(dir, Label(version))
	header := `{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	file := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header...)
	file = append(file, 1, 2, 3, byte(version), byte(version>>8), 6, 7, 8)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"config.json": []byte("{}"), "model.safetensors": file} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
