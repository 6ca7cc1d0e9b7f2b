package plane

import (
	"fmt"
	"strings"

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

// someOf are the first of many names.
func someOf(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
