package main

import (
	"context"
	"fmt"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop/trace"
	"net"
	"path/filepath"
	"sync"
)

// runPages serves a run's pages while it goes on.
type runPages struct {
	view   *shownRun
	url    string
	stop   context.CancelFunc
	served sync.WaitGroup
}

// servePagesOf opens the port of a run's pages; nil, with the reason, where there is none. A run does not fail for want
// of its pages.
func (j *job) servePagesOf(header trace.Header) (*runPages, error) {
	listener, err := j.listenForPages()
	if err != nil {
		return nil, err
	}
	var resume *live.Resume
	if j.resumed != nil {
		resume = j.resumed.state
	}
	j.shown = newShownRun(j.record, filepath.Base(j.Dir), header, resume, j.disk.stall)
	ctx, stop := context.WithCancel(context.Background())
	p := &runPages{view: j.shown, url: "http://" + listener.Addr().String() + "/", stop: stop}
	p.served.Go(func() { _ = servePages(ctx, listener, j.shown.model.Handler()) }) // the run is not over with its pages
	return p, nil
}

// listenForPages takes the port that the document names, or the first free one.
func (j *job) listenForPages() (net.Listener, error) {
	address := j.Cfg.Server.Listen
	if !j.Cfg.Given("server.listen") {
		return firstFree(viewListen)
	}
	if err := checkViewListen(address); err != nil {
		return nil, err
	}
	return firstFree(address)
}

// close ends the pages; the nil runPages has none.
func (p *runPages) close() {
	if p == nil {
		return
	}
	p.view.close()
	p.stop()
	p.served.Wait()
}

// pagesLine says where a run is shown.
func pagesLine(p *runPages, why error) string {
	if p == nil {
		return fmt.Sprintf("no dashboard: %v", why)
	}
	return "dashboard " + p.url
}
