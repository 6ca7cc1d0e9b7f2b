package jetstream

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestErrorsHaveNoPassword: no error of a connection has the password that stands in an address: it goes to logs and to --json.
func TestErrorsHaveNoPassword(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	nobody := freeAddress(t)
	for _, url := range []string{"nats://plane:secret@" + nobody, "plane:secret@" + nobody, "nats://one:1,nats://plane:secret@" + nobody, "nats://plane:secret%zz@" + nobody, "nats://plane:secret word@" + nobody,
		startServer(t, nil) + "x,nats://plane:secret@" + nobody} {
		s := newStore(Options{URL: url, Run: "hidden"})
		_, err := dial(s.options, nil, "test", nil)
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "zz") || !strings.Contains(err.Error(), nobody) {
			t.Errorf("%s: %v", url, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(ctx, Options{URL: "nats://plane:secret@" + nobody, Run: "hidden"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
