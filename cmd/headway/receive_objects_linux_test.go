package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/transfer"
)

// A receiver leaves the streams of its run as they are, and makes none for a run that is not there. It may come before the first
// version: the run has no files then.
func TestReceiveChangesNoStream(t *testing.T) {
	n := newNATSServer(t)
	url := n.server.ClientURL()
	run, err := jetstream.Open(t.Context(), jetstream.Options{URL: url, Run: "r", LogBytesMax: 32 << 20, PayloadBytesMax: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	before := n.streams()
	for _, name := range []string{"r", "mistyped"} {
		command := &receiveCmd{NATS: url, Objects: name, Dir: t.TempDir(), Keep: 1}
		delivery, done, err := command.objectDelivery(t.Context(), &app.Process{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if _, err := delivery.Fetch(t.Context(), transfer.Load{Version: 1}); err == nil || !strings.Contains(err.Error(), "store.nats.objects: true") {
			t.Errorf("a load of %s: %v, want what to do", name, err)
		}
	}
	if after := n.streams(); after != before {
		t.Errorf("the streams are\n%s\nand were\n%s", after, before)
	}
}

// streams are those that the server has, with their bounds.
func (n *natsServer) streams() string {
	n.t.Helper()
	info, err := n.server.Jsz(&server.JSzOptions{Streams: true, Config: true})
	if err != nil || len(info.AccountDetails) != 1 {
		n.t.Fatal(len(info.AccountDetails), err)
	}
	var all []string
	for _, s := range info.AccountDetails[0].Streams {
		all = append(all, fmt.Sprintf("%s: %d replicas, %d bytes", s.Name, s.Config.Replicas, s.Config.MaxBytes))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
