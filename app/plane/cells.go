package plane

import (
	"context"
	"fmt"
	"strings"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/drive/cell/link"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/observe/report"
)

// hearCells has the run hear its cells in other processes, until stop is called.
func (p *Plane) hearCells(run *live.Runtime) (stop func(), err error) {
	names := p.Cfg.Cells()
	if len(names) == 0 {
		return func() {}, nil
	}
	for _, name := range names {
		var engines []string
		for _, e := range p.Cfg.Engines {
			if e.Cell == name {
				engines = append(engines, e.Name)
			}
		}
		p.logf("cell %s has %s: %s. headway cell %s with this document starts it", name, report.Counted(len(engines), "engine"), someOf(engines), name)
	}
	return p.log.HearCells(link.NewEar(run.Receive, p.logf).Take)
}

// inCells is the workers' side of a control plane without engines of its own, which has no rollout to give.
type inCells struct {
	api.Rollouts
	cells string
}

// Claim implements api.Rollouts.
func (c inCells) Claim(context.Context, protocol.ClaimRequest) (protocol.Claims, error) {
	return protocol.Claims{}, protocol.Refuse(protocol.CodeInvalid, "all engines of this run are in cells (%s), and rollouts are claimed where they play: give the worker the address of a cell", c.cells)
}

// someOf are the first of many names.
func someOf(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
