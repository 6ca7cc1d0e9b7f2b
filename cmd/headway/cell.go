package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"path/filepath"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/cell"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
)

// cellCmd is a cell of a run: engines, and the rollouts on them, in a process beside the control plane.
type cellCmd struct {
	Cell string   `arg:"" help:"Name of the cell, as engines.*.cell of the document has it."`
	File string   `arg:"" help:"Config file of the run, the one that headway serve was given."`
	Name string   `default:"serve" help:"Name of the run."`
	Dir  string   `help:"Folder of all runs, which the control plane has too (default: runs)."`
	NATS string   `name:"nats" placeholder:"URL" help:"The NATS cluster of the run, where the document does not name it."`
	Set  []string `placeholder:"KEY=VALUE" sep:"none" help:"Override a key of the config; repeatable. The control plane needs the same."`

	Listen    string `placeholder:"ADDRESS" help:"Address and port for workers, agents and probes of this cell; without it the cell opens none."`
	URL       string `name:"url" placeholder:"URL" help:"Where they reach this cell, if --listen is behind an address that several cells answer for: claims name it."`
	TokenFile string `placeholder:"FILE" help:"Tokens by role, a line 'ROLE TOKEN' each; needed off loopback."`
	TLSCert   string `name:"tls-cert" placeholder:"FILE" help:"Certificate (PEM) to serve TLS with."`
	TLSKey    string `name:"tls-key" placeholder:"FILE" help:"Private key (PEM) of the certificate."`
}

// Run is the cell until the run has ended or a signal comes.
func (c *cellCmd) Run(a *app.Process) (err error) {
	if err := origin.RefuseRunAsDocument(c.File); err != nil {
		return err
	}
	if err := origin.CheckName(c.Name); err != nil {
		return err
	}
	document := serveCmd{File: c.File, Dir: c.Dir, NATS: c.NATS, Set: c.Set, Listen: c.Listen, TokenFile: c.TokenFile, TLSCert: c.TLSCert, TLSKey: c.TLSKey}
	cfg, err := document.document()
	if err != nil {
		return err
	}
	if cfg.Store.NATS.URL == "" && len(cfg.Cells()) > 0 {
		return cfg.Refuse("store.nats.url", "is missing: a cell reaches its run over NATS servers", "store.nats.listen, for the control plane's own server, or the address of servers that both reach")
	}
	around := surround(a)
	opt := cell.Options{Cell: c.Cell, Run: c.Name, Dir: filepath.Join(cfg.Store.Dir, c.Name), Program: programName(), Columns: around.Columns, URL: c.URL, Version: around.Version}
	if opt.Listener, err = c.listener(cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	handleInterrupts(ctx, func() { cancel(errCellInterrupted) })
	made, err := cell.New(a, cfg, opt)
	if err != nil {
		if opt.Listener != nil {
			err = errors.Join(err, opt.Listener.Close())
		}
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	return made.Run(ctx)
}

// listener is where the cell is asked, nil without --listen.
func (c *cellCmd) listener(cfg config.Config) (net.Listener, error) {
	if c.URL != "" {
		if u, err := url.Parse(c.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, failure.Usage("want http://HOST:PORT or https://HOST:PORT", "--url %s is no address", c.URL)
		}
	}
	if c.Listen == "" {
		if c.URL != "" {
			return nil, failure.Usage("give --listen as well", "--url names where this cell is reached, and it opens no port")
		}
		return nil, nil
	}
	if err := checkExposure(cfg); err != nil {
		return nil, err
	}
	return listen(cfg)
}

var errCellInterrupted = errors.New("it was interrupted")
