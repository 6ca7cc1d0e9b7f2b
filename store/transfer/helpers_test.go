package transfer_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/transfer"
)

// manifestOf is the manifest of the files of a directory.
func manifestOf(t testing.TB, dir string, parts []transfer.Part) []byte {
	t.Helper()
	type file struct {
		Name string `json:"name"`
		Hash string `json:"hash"`
	}
	var manifest struct {
		Files []file `json:"files"`
	}
	for _, p := range parts {
		f, err := os.Open(filepath.Join(dir, p.Name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		manifest.Files = append(manifest.Files, file{p.Name, fmt.Sprintf("sha256:%x", sum.Sum(nil))})
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// from is what a control plane at the last of some URLs tells a receiver to load: from the others first.
func from(t testing.TB, version loop.Version, form string, urls ...string) transfer.Load {
	t.Helper()
	out := transfer.Load{Version: version}
	for i, url := range urls {
		out.Parents = append(out.Parents, transfer.Parent{URL: url, Control: i == len(urls)-1})
	}
	response, err := http.Get(fmt.Sprintf("%s/%d?form=%s", urls[len(urls)-1], version, form))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var offer transfer.Offer
	if err := json.NewDecoder(response.Body).Decode(&offer); err != nil {
		t.Fatal(err)
	}
	out.Offer = offer.Digest()
	return out
}

// passOn answers with what an address answers.
func passOn(t testing.TB, w http.ResponseWriter, address string) {
	response, err := http.Get(address)
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close()
	_, _ = io.Copy(w, response.Body) // who asked may have gone
}
