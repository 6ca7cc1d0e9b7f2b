package transfer_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/store/transfer"
)

// publish puts a version of some files in a directory, as a trainer's store has it.
func publish(t testing.TB, sizes ...int) (dir string, parts []transfer.Part) {
	t.Helper()
	dir = t.TempDir()
	for i, size := range sizes {
		content := make([]byte, size)
		if _, err := rand.Read(content); err != nil {
			t.Fatal(err)
		}
		name := string(rune('a'+i)) + ".safetensors"
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, transfer.Part{Name: name, Size: int64(size)})
	}
	return dir, parts
}

// origin serves a version as a control plane does.
func origin(t testing.TB, dir string, parts []transfer.Part) string {
	t.Helper()
	c, err := transfer.OpenCopy(7, "", manifestOf(t, dir, parts), parts, dir)
	if err != nil {
		t.Fatal(err)
	}
	source := &transfer.Source{}
	source.Add(c)
	return serve(t, source)
}

// serve returns the URL of a source.
func serve(t testing.TB, source *transfer.Source) string {
	t.Helper()
	server := httptest.NewServer(source.Handler("/t"))
	t.Cleanup(server.Close)
	return server.URL + "/t"
}

// node is a receiver with its server.
func node(t testing.TB) (*transfer.Store, string) {
	t.Helper()
	store := &transfer.Store{Dir: t.TempDir(), Source: &transfer.Source{}}
	server := httptest.NewServer(store.Source.Handler("/t"))
	t.Cleanup(server.Close)
	return store, server.URL + "/t"
}

// A chain brings every byte to every receiver, and so does an origin that sends all of them itself,
// sizes around the chunk's included.
func TestFanOut(t *testing.T) {
	dir, parts := publish(t, 3, transfer.ChunkBytes, 0, transfer.ChunkBytes+1, 2*transfer.ChunkBytes-1)
	url := origin(t, dir, parts)
	for _, chained := range []bool{true, false} {
		const n = 5
		stores, urls := make([]*transfer.Store, n), make([]string, n)
		for i := range stores {
			stores[i], urls[i] = node(t)
		}
		var wg sync.WaitGroup
		for i := n - 1; i >= 0; i-- { // the last first: it waits for its parent to begin
			chain := from(t, 7, "", url)
			if chained && i > 0 {
				chain = from(t, 7, "", urls[i-1], url)
			}
			wg.Go(func() {
				if _, err := stores[i].Fetch(context.Background(), chain); err != nil {
					t.Errorf("chained %t: receiver %d: %v", chained, i, err)
				}
			})
		}
		wg.Wait()
		for i, store := range stores {
			for _, p := range parts {
				want, _ := os.ReadFile(filepath.Join(dir, p.Name))
				got, err := os.ReadFile(filepath.Join(store.Path(7), p.Name))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("chained %t: receiver %d has another %s (%v)", chained, i, p.Name, err)
				}
			}
		}
	}
}

// A parent that dies in the middle is replaced by the next, from where it ended; a chunk
// that was damaged on the way is refused.
func TestParentsFail(t *testing.T) {
	dir, parts := publish(t, 3*transfer.ChunkBytes+5)
	good := origin(t, dir, parts)
	for name, spoil := range map[string]func(body []byte) []byte{
		"cut":      func(body []byte) []byte { return body[:len(body)/2] },
		"flipped":  func(body []byte) []byte { body[transfer.ChunkBytes+100] ^= 1; return body },
		"nonsense": func([]byte) []byte { return []byte("nonsense") },
	} {
		bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			response, err := http.Get(strings.Replace(good, "/t", "", 1) + r.URL.String())
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			body, _ := io.ReadAll(response.Body)
			if strings.HasSuffix(r.URL.Path, "chunks") {
				body = spoil(body)
			}
			_, _ = w.Write(body)
		}))
		defer bad.Close()
		store := &transfer.Store{Dir: t.TempDir()}
		p, err := store.Fetch(context.Background(), from(t, 7, "", bad.URL+"/t", good))
		if err != nil || p.Parents != 2 {
			t.Fatalf("%s: %v after %d parents, want the second to help", name, err, p.Parents)
		}
		want, _ := os.ReadFile(filepath.Join(dir, parts[0].Name))
		if got, err := os.ReadFile(filepath.Join(store.Path(7), parts[0].Name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: what arrived is not what was sent (%v)", name, err)
		}
		alone := &transfer.Store{Dir: t.TempDir()}
		fromIt := from(t, 7, "", bad.URL+"/t", good)
		fromIt.Parents = fromIt.Parents[:1]
		if _, err := alone.Fetch(context.Background(), fromIt); err == nil || alone.Has(7) {
			t.Errorf("%s: a version that did not arrive is there (%v)", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(alone.Dir, "*")); len(left) != 0 {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

// A name that leads out of the directory is refused, whoever offers it.
func TestNamesStayInside(t *testing.T) {
	for _, name := range []string{"../evil", "/etc/evil", "a/b", "..", "manifest.json", ""} {
		offer := transfer.Offer{Version: 7, ManifestText: "{}", Parts: []transfer.Part{{Name: name, Size: 0}}}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(offer)
		}))
		store := &transfer.Store{Dir: t.TempDir()}
		if _, err := store.Fetch(context.Background(), from(t, 7, "", server.URL)); err == nil {
			t.Errorf("a file called %q was taken", name)
		}
		server.Close()
	}
}
