package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/presence"
	"github.com/headway-rl/headway/internal/presence/presencetest"
)

// A claim does not age while the control plane cannot answer, nor while its process is stopped, and whoever holds it
// has time to say so after that. It then lasts as long as any.
func TestClaimOutlastsAbsence(t *testing.T) {
	for name, absent := range map[string]func(*presencetest.Process){
		"an outage":           func(p *presencetest.Process) { p.Away(15 * time.Second) },
		"an outage of a day":  func(p *presencetest.Process) { p.Away(24 * time.Hour) },
		"a suspended process": func(p *presencetest.Process) { p.Sleep(time.Hour) },
		"several outages": func(p *presencetest.Process) {
			for range 5 {
				p.Away(15 * time.Second)
				time.Sleep(5 * time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				process := presencetest.Start(t)
				e := open(t, func(o *Options) { o.Clock, o.ClaimTTL = process.Clock, 6*time.Second })
				p := play(t, e, id(1, 0, 1))
				claims, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: "w"})
				if err != nil || len(claims.Rollouts) != 1 {
					t.Fatal(claims, err)
				}
				time.Sleep(3 * time.Second)
				absent(process)
				time.Sleep(2 * time.Second) // the pause between two calls
				if _, err := e.Touch(t.Context(), claims.Rollouts[0].ID, protocol.TouchRequest{Worker: "w"}); err != nil {
					t.Fatalf("its claim after the absence: %v", err)
				}
				time.Sleep(presence.GraceMost + 7*time.Second)
				synctest.Wait()
				select {
				case <-p.done:
					if !errors.Is(p.err, context.DeadlineExceeded) {
						t.Errorf("it ended by %v", p.err)
					}
				default:
					t.Error("a silent worker's claim lasts on")
				}
			})
		})
	}
}
