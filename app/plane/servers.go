package plane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// serversWait is how long a new run waits for its engines: servers are often started at the same time,
// and take minutes to load a model. serversAgain is the time between two looks. answersWait is how long one that goes on
// waits for the answers of all: a server may hang, or stay paused by a control plane that is gone.
const (
	serversWait  = 10 * time.Minute
	serversAgain = 2 * time.Second
	answersWait  = 20 * time.Second
)

// asking bounds what is asked of servers at a start.
func asking(ctx context.Context, goesOn bool) (context.Context, context.CancelFunc) {
	if goesOn {
		return context.WithTimeout(ctx, answersWait)
	}
	return context.WithCancel(ctx)
}

// awaitServers asks the servers what they can, says what they lack, and ends the start where nothing
// could be trained on without it. A new run waits for servers that do not answer; one that goes on
// has work without them, and they join when they answer. Those that are started from here are not
// asked: they do not run yet.
func (p *Plane) awaitServers(ctx context.Context, goesOn bool) error {
	own := len(p.OwnUpstreams())
	if own == 0 || p.Fleet != nil { // each is asked when it was started
		return nil
	}
	left := p.Asked()
	limit := time.NewTimer(serversWait)
	defer limit.Stop()
	again := time.NewTicker(serversAgain)
	defer again.Stop()
	defer p.awaits("", "")
	said := ""
	for {
		var down []string
		var failures []error
		silent := left[:0:0]
		for _, a := range p.Ask(ctx, left) {
			if errors.Is(a.Err, upstream.ErrKind) && !goesOn {
				failures = append(failures, parts.WrongKind(a.Err))
				continue
			}
			if a.Err != nil {
				silent = append(silent, a.Engine)
				down = append(down, a.Err.Error())
				continue
			}
			failures = append(failures, p.Judge(a.Engine, a.Caps))
		}
		if err := errors.Join(failures...); err != nil {
			return err
		}
		left = silent
		if len(left) == 0 {
			return nil
		}
		if goesOn {
			p.logf("engines unreachable: going on without them, they join when they answer: %s", strings.Join(down, "; "))
			return nil
		}
		if text := strings.Join(down, "; "); text != said {
			said = text
			p.awaits(fmt.Sprintf("%d of %s to answer", len(left), report.Counted(own, "engine")), text)
			p.logf("engines unreachable: waiting, up to %s: %s", serversWait, text)
		}
		select {
		case <-again.C:
		case <-limit.C:
			return failure.Usage("start the servers, or look at engines.*.url and kind; headway doctor says what each lacks", "no answer from %d of %d engines within %s: %s", len(left), own, serversWait, said)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// serverStatus is what the status says of an engine's server, nil for an embedded one, and for one of a cell in another
// process.
func (p *Plane) serverStatus(i int) *protocol.Server {
	if p.Service != nil {
		return p.hostedStatus()
	}
	return p.ServerStatus(i, p.App.Now())
}
