package plane

import (
	"errors"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/store/transfer"
	"strings"
	"testing"
	"testing/synctest"
)

// What a disk engine, or a receiver, would read from the store is published with its files.
func TestPublishedWithoutFiles(t *testing.T) {
	for want, engines := range map[string][]config.Engine{
		"b (weights disk). Publish files": {{Name: "a", Weights: "distributed"}, {Name: "b", Weights: "disk"}, {Name: "c", Weights: "none"}},
		"no sender is there":              {{Name: "a", Weights: "distributed"}, {Name: "c", Weights: "none"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &Plane{Record: &record.Record{Parts: &parts.Parts{Cfg: config.Config{Engines: engines}}}, receivers: transfer.NewCoordinator(transfer.Options{}), senders: collective.NewCoordinator(collective.Options{})}
			err := p.confirmSent(t.Context(), "t", 3)
			if _, ok := errors.AsType[*protocol.Refusal](err); !ok || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want a refusal with %q", err, want)
			}
		})
	}
}
