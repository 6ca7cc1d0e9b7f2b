package plane

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
)

// A control plane that cannot be reached any more ends with an error, and does not keep its run from another.
func TestALostListenerEndsTheControlPlane(t *testing.T) {
	cfg, err := config.Parse("test", []byte("trainer: {kind: remote}\n"))
	if err == nil {
		cfg, err = cfg.Resolve()
	}
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = listener.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	process := &app.Process{Stderr: io.Discard, Stdout: io.Discard, Now: time.Now, Getenv: func(string) string { return "" }}
	p, err := New(process, record.Surroundings{Lines: func(string) record.View { return silent{} }}, cfg, t.TempDir(), "r", listener)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := p.Serve(ctx, cancel, nil); err == nil || !strings.Contains(err.Error(), "api: listening on") {
		t.Errorf("it ends with %v", err)
	}
}
