package run

import (
	"context"
	"fmt"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop/trace"
	"net"
	"path/filepath"
	"sync"
)

// runPages serves a run's pages while it goes on.
type runPages struct {
	view   *record.Shown
	url    string
	stop   context.CancelFunc
	served sync.WaitGroup
}

// ServePagesOf opens the port of a run's pages; nil, with the reason, where there is none. A run does not fail for want
// of its pages.
func (j *Run) ServePagesOf(header trace.Header) (*runPages, error) {
	listener, err := j.listenForPages()
	if err != nil {
		return nil, err
	}
	var resume *live.Resume
	if j.resumed != nil {
		resume = j.resumed.State
	}
	j.Shown = record.NewShown(j.Record, filepath.Base(j.Dir), header, resume, j.Disk.stall)
	ctx, stop := context.WithCancel(context.Background())
	p := &runPages{view: j.Shown, url: "http://" + listener.Addr().String() + "/", stop: stop}
	p.served.Go(func() { _ = record.ServePages(ctx, listener, j.Shown.Model.Handler()) }) // the run is not over with its pages
	return p, nil
}

// listenForPages takes the port that the document names, or the first free one.
func (j *Run) listenForPages() (net.Listener, error) {
	address := j.Cfg.Server.Listen
	if !j.Cfg.Given("server.listen") {
		return record.FirstFree(record.ViewListen)
	}
	if err := record.CheckViewListen(address); err != nil {
		return nil, err
	}
	return record.FirstFree(address)
}

// Close ends the pages; the nil runPages has none.
func (p *runPages) Close() {
	if p == nil {
		return
	}
	p.view.Close()
	p.stop()
	p.served.Wait()
}

// PagesLine says where a run is shown.
func PagesLine(p *runPages, why error) string {
	if p == nil {
		return fmt.Sprintf("no dashboard: %v", why)
	}
	return "dashboard " + p.url
}
