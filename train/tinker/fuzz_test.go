package tinker

import (
	"os"
	"testing"
)

// FuzzRecord: the file of a version is refused, or is that version's and has both paths.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"version":3,"lease":1,"sampler":"tinker://a","state":"tinker://b","former":["tinker://c"]}`))
	f.Add([]byte(`{"format":1,"version":3,"sampler":"a","state":"b"}{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v := &Versions{dir: t.TempDir()}
		if err := os.WriteFile(v.path(fileName(3)), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := v.read(3); err == nil && (r.Version != 3 || r.Sampler == "" || r.State == "") {
			t.Errorf("%+v", r)
		}
	})
}
