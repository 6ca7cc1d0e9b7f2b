package run

import (
	"context"
	"fmt"
	"github.com/headway-rl/headway/app/pages"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop/trace"
	"net"
	"path/filepath"
	"sync"
)

// Pages are a run's pages, served while it goes on. The nil Pages are of a run that has none.
type Pages struct {
	view   *record.Shown
	url    string
	stop   context.CancelFunc
	served sync.WaitGroup
}

// ServePages opens the port of a run's pages; nil, with the reason, where there is none. A run does not fail for want
// of its pages.
func (j *Run) ServePages(header trace.Header) (*Pages, error) {
	listener, err := j.listenForPages()
	if err != nil {
		return nil, err
	}
	var resume *live.Resume
	if j.resumed != nil {
		resume = j.resumed.State
	}
	j.Shown = record.NewShown(j.Record, filepath.Base(j.Dir), header, resume, j.disk.stall)
	ctx, stop := context.WithCancel(context.Background())
	token := pages.KeptToken(j.Dir)
	p := &Pages{view: j.Shown, url: pages.Link(listener, token), stop: stop}
	p.served.Go(func() { _ = pages.Serve(ctx, listener, j.Shown.Model.Handler(), token) }) // the run is not over with its pages
	return p, nil
}

// listenForPages takes the port that the document names, or the first free one.
func (j *Run) listenForPages() (net.Listener, error) {
	address := j.Cfg.Server.Listen
	if !j.Cfg.Given("server.listen") {
		return pages.FirstFree(pages.DefaultListen)
	}
	if err := pages.CheckListen(address); err != nil {
		return nil, err
	}
	return pages.FirstFree(address)
}

// Close ends the pages.
func (p *Pages) Close() {
	if p == nil {
		return
	}
	p.view.Close()
	p.stop()
	p.served.Wait()
}

// Line says where the run is shown, and why it is not.
func (p *Pages) Line(why error) string {
	if p == nil {
		return fmt.Sprintf("no dashboard: %v", why)
	}
	return "dashboard " + p.url
}
