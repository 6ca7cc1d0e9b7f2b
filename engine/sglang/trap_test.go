package sglang

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// bodyOf is the body of the one request to a path.
func bodyOf(t *testing.T, asked []string, path string) map[string]any {
	t.Helper()
	for _, text := range asked {
		if text, ok := strings.CutPrefix(text, path+" "); ok {
			var body map[string]any
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return body
		}
	}
	t.Fatalf("%s was not asked: %q", path, asked)
	return nil
}

// TestTrap5AnUpdateAbortsNothing: SGLang aborts everything under way with an update or a label, unless it is told not to.
func TestTrap5AnUpdateAbortsNothing(t *testing.T) {
	s, asked := asking(t, nil)
	if err := New().Update(t.Context(), s, upstream.Update{Dir: "/weights/v2", Label: "v2", Cache: upstream.CacheSalt}, nil); err != nil {
		t.Fatal(err)
	}
	if len(*asked) != 1 {
		t.Errorf("an update is %d requests: %q", len(*asked), *asked)
	}
	body := bodyOf(t, *asked, "/update_weights_from_disk")
	if abort, said := body["abort_all_requests"].(bool); !said || abort {
		t.Errorf("abort_all_requests is %v, want false to be said", body["abort_all_requests"])
	}
}

// TestTrap6NothingIsFlushedInPlace: a server that is paused in place refuses to flush its cache. Whatever flushes pauses
// by retraction, and whatever pauses in place says that nothing is flushed.
func TestTrap6NothingIsFlushedInPlace(t *testing.T) {
	for cache, want := range map[string]struct {
		mode  string
		flush bool
	}{
		upstream.CacheSalt: {modeInPlace, false}, upstream.CacheKeep: {modeInPlace, false}, upstream.CacheFlush: {modeRetract, true},
	} {
		s, asked := asking(t, nil)
		u := upstream.Update{Dir: "/weights/v2", Label: "v2", Cache: cache}
		caps := &upstream.Capabilities{}
		if err := New().Pause(t.Context(), s, u, caps); err != nil {
			t.Fatal(err)
		}
		if err := New().Update(t.Context(), s, u, caps); err != nil {
			t.Fatal(err)
		}
		if mode := bodyOf(t, *asked, "/pause_generation")["mode"]; mode != want.mode {
			t.Errorf("cache %s: paused by %v, want %s", cache, mode, want.mode)
		}
		if flush := bodyOf(t, *asked, "/update_weights_from_disk")["flush_cache"]; flush != want.flush {
			t.Errorf("cache %s: flush_cache is %v, want %t", cache, flush, want.flush)
		}
		for _, text := range *asked {
			if strings.HasPrefix(text, "/flush_cache") {
				t.Errorf("cache %s: %s", cache, text)
			}
		}
	}
}
