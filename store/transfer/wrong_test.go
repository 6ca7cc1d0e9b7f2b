package transfer_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/api/apitest"
	"github.com/headway-rl/headway/store/transfer"
)

// What a receiver passes versions on at is asked whatever a stranger likes, with its secret and without. It answers with
// refusals that say why.
func TestWrongRequests(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	parts := []transfer.Part{{Name: "model.safetensors", Size: 4}}
	for secret, may := range map[string]string{"": "yes", "the secret of a parent": "no"} {
		c, err := transfer.OpenCopy(1, "", manifestOf(t, dir, parts), parts, dir)
		if err != nil {
			t.Fatal(err)
		}
		source := &transfer.Source{Secret: secret}
		source.Add(c)
		listener := httptest.NewServer(source.Handler("/t"))
		routes, err := apitest.Routes(fmt.Sprintf("| call | without tokens |\n| `GET /t/{version}` | %s |\n| `GET /t/{version}/chunks` | %s |\n", may, may))
		if err != nil {
			t.Fatal(err)
		}
		report := apitest.Send(t.Context(), apitest.Target{URL: listener.URL, Routes: routes, Plain: true}, 1, 160, 16)
		listener.Close()
		source.Remove(1)
		t.Logf("%s", report)
		for _, fault := range report.Faults {
			t.Error(fault)
		}
	}
}
