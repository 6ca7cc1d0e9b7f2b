package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/presence"
	"github.com/headway-rl/headway/internal/presence/presencetest"
)

// A lease does not age while the control plane cannot answer, nor while its process is stopped. Its trainer has time to
// say so after that, nobody else is let in, and it then lasts as long as any.
func TestLeaseOutlastsAbsence(t *testing.T) {
	for name, absent := range map[string]func(*presencetest.Process){
		"an outage":           func(p *presencetest.Process) { p.Away(15 * time.Second) },
		"an outage of a day":  func(p *presencetest.Process) { p.Away(24 * time.Hour) },
		"a suspended process": func(p *presencetest.Process) { p.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				process := presencetest.Start(t)
				r := started(t, func(o *Options) { o.Clock, o.Lease = process.Clock, 6*time.Second })
				out := r.train(groups(5, 1, 0, 2))
				r.lease("a", 0, 0)
				time.Sleep(3 * time.Second)
				absent(process)
				time.Sleep(2 * time.Second) // the pause between two calls
				_, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "b", Version: -1})
				r.refused(err, protocol.CodeConflict, "trainer a has this run")
				_, err = r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1})
				r.must(err)
				began := time.Now()
				r.returned(out)
				if lasted := time.Since(began); lasted < 6*time.Second || lasted > 7*time.Second+presence.GraceMost {
					t.Errorf("it lasted %v after it was renewed", lasted)
				}
			})
		})
	}
}
