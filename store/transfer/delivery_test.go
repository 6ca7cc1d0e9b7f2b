package transfer_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/store/transfer"
)

// A version on a shared disk is one when its manifest can be seen, however late that is.
func TestSharedDiskMayLag(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		delivery := transfer.Shared{Dir: dir, Patience: time.Minute}
		write := func(name, text string) {
			path := filepath.Join(delivery.Path(3), name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("model.safetensors", "0123456789")
		go func() {
			time.Sleep(5 * time.Second)
			write("manifest.json", "{}")
		}()
		began := time.Now()
		p, err := delivery.Fetch(context.Background(), transfer.Load{Version: 3})
		if waited := time.Since(began); err != nil || p.Bytes != 10 || waited < 5*time.Second {
			t.Errorf("%d bytes after %v (%v), want the 10 as soon as the manifest was there", p.Bytes, waited, err)
		}
		_, err = delivery.Fetch(context.Background(), transfer.Load{Version: 4})
		if err == nil || !strings.Contains(err.Error(), "version 4") || !strings.Contains(err.Error(), dir) {
			t.Errorf("a version that does not come: %v", err)
		}
	})
}

// What was cast travels beside what was published, under the same number.
func TestForms(t *testing.T) {
	whole, parts := publish(t, 5000)
	cast, castParts := publish(t, 1000)
	source := &transfer.Source{}
	for form, dir := range map[string]string{"": whole, "bf16": cast} {
		sizes := parts
		if form != "" {
			sizes = castParts
		}
		c, err := transfer.OpenCopy(7, form, manifestOf(t, dir, sizes), sizes, dir)
		if err != nil {
			t.Fatal(err)
		}
		source.Add(c)
	}
	server := serve(t, source)
	for form, want := range map[string]int64{"": 5000, "bf16": 1000} {
		store := &transfer.Store{Dir: t.TempDir(), Form: form}
		p, err := store.Fetch(context.Background(), from(t, 7, form, server))
		if err != nil || p.Bytes != want {
			t.Errorf("form %q: %d bytes (%v), want %d", form, p.Bytes, err, want)
		}
	}
	source.Remove(7)
	if source.Find(7, "") != nil || source.Find(7, "bf16") != nil {
		t.Error("a version that was removed is offered still")
	}
}
