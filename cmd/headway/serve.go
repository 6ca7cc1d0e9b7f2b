package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
)

// serveCmd is the control plane: the loop, its queue and its versions, for a trainer,
// engines and environment workers that connect.
type serveCmd struct {
	command.Output
	File      string   `arg:"" optional:"" help:"Config file; without one engines and environment are embedded, and a trainer of yours connects."`
	Listen    string   `placeholder:"ADDRESS" help:"Address and port of the API (default: 127.0.0.1:7070)."`
	Name      string   `default:"serve" help:"Name of the run: starting it again goes on with it."`
	Dir       string   `help:"Folder of all runs (default: runs)."`
	NATS      string   `name:"nats" placeholder:"URL" help:"A NATS cluster to keep log and payloads in, instead of a server inside this process."`
	TokenFile string   `placeholder:"FILE" help:"Tokens by role, a line 'ROLE TOKEN' each; needed off loopback. Roles: trainer, environment, engine, viewer, admin."`
	TLSCert   string   `name:"tls-cert" placeholder:"FILE" help:"Certificate (PEM) to serve TLS with."`
	TLSKey    string   `name:"tls-key" placeholder:"FILE" help:"Private key (PEM) of the certificate."`
	Seed      *uint64  `help:"Seed of prompts, weights and sampling."`
	Steps     *int     `help:"Train steps."`
	Set       []string `placeholder:"KEY=VALUE" sep:"none" help:"Override a key of the config; repeatable."`
}

// Run serves until the run's steps are done, a signal, or another process takes over.
func (c *serveCmd) Run(a *app.Process) (err error) {
	if err := origin.RefuseRunAsDocument(c.File); err != nil {
		return err
	}
	cfg, err := c.document()
	if err != nil {
		return err
	}
	warnOf(a, cfg)
	if err := origin.CheckName(c.Name); err != nil {
		return err
	}
	if err := checkExposure(cfg); err != nil {
		return err
	}
	dir := filepath.Join(cfg.Store.Dir, c.Name)
	if err := origin.CheckFolder(cfg.Store.Dir); err != nil {
		return err
	}
	if err := origin.RefuseOthersDirectory(dir, !cfg.Store.NATS.Inside()); err != nil {
		return err
	}
	listener, err := listen(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if !cfg.External() { // else what computes without a pause has a process of its own
		run.GiveHelpersAThread(a)
	}
	stop := handleInterrupts(ctx, func() { cancel(errors.New("interrupted")) })
	p, err := plane.New(a, surround(a), cfg, dir, c.Name, listener)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	gracefully := func() { p.Drain(cancel) }
	stop.Store(&gracefully)
	if c.JSON {
		return p.Serve(ctx, cancel, func(s protocol.Status) error { return printJSON(a.Stdout, s) })
	}
	return p.Serve(ctx, cancel, nil)
}

// document is the config with the flags that stand for its keys. A control plane's
// trainer is a remote one unless the document says otherwise, or its engine trains as well.
func (c *serveCmd) document() (config.Config, error) {
	overrides := c.overrides()
	cfg, err := config.LoadWith(c.File, overrides...)
	if err == nil && !cfg.Given("trainer.kind") && !cfg.Tinker() {
		cfg, err = config.LoadWith(c.File, append(overrides, config.Override{Flag: "headway serve", Text: "trainer.kind=remote"})...)
	}
	if err == nil {
		err = origin.RefusePlan(cfg)
	}
	return cfg, err
}

func (c *serveCmd) overrides() []config.Override {
	var out []config.Override
	add := func(flag, key, value string) {
		if value != "" {
			out = append(out, config.Override{Flag: flag, Text: key + "=" + strconv.Quote(value)}) // an address is not always plain YAML
		}
	}
	if c.Seed != nil {
		out = append(out, config.Override{Flag: "--seed", Text: fmt.Sprintf("seed=%d", *c.Seed)})
	}
	if c.Steps != nil {
		out = append(out, config.Override{Flag: "--steps", Text: fmt.Sprintf("trainer.steps=%d", *c.Steps)})
	}
	add("--listen", "server.listen", c.Listen)
	add("--dir", "store.dir", c.Dir)
	add("--nats", "store.nats.url", c.NATS)
	add("--token-file", "server.token_file", c.TokenFile)
	add("--tls-cert", "server.tls_cert", c.TLSCert)
	add("--tls-key", "server.tls_key", c.TLSKey)
	for _, text := range c.Set {
		out = append(out, config.Override{Text: text})
	}
	return out
}

// listen opens the port of a process that serves.
func listen(cfg config.Config) (net.Listener, error) {
	listener, err := net.Listen("tcp", cfg.Server.Listen)
	if err != nil {
		return nil, failure.Usage("choose another port, or stop what listens there; port 0 takes a free one", "--listen %s: %w", cfg.Server.Listen, err)
	}
	return listener, nil
}

// checkExposure refuses an open door: whoever reaches the port may train, read
// rollouts and stop the run.
func checkExposure(cfg config.Config) error {
	if _, _, err := net.SplitHostPort(cfg.Server.Listen); err != nil {
		return cfg.Refuse("server.listen", fmt.Sprintf("is not an address: %v", err), "HOST:PORT, such as 127.0.0.1:7070 or :7070")
	}
	if api.CheckListen(cfg.Server.Listen, cfg.Server.TokenFile != "") != nil {
		return cfg.Refuse("server.listen", "is reachable from other machines, and no token is asked for", "a loopback address, or server.token_file (--token-file)")
	}
	return nil
}
