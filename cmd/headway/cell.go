package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/cell"
	"github.com/headway-rl/headway/app/origin"
)

// cellCmd is a cell of a run: engines, and the rollouts on them, in a process beside the control plane.
type cellCmd struct {
	Cell string   `arg:"" help:"Name of the cell, as engines.*.cell of the document has it."`
	File string   `arg:"" help:"Config file of the run, the one that headway serve was given."`
	Name string   `default:"serve" help:"Name of the run."`
	Dir  string   `help:"Folder of all runs, which the control plane has too (default: runs)."`
	NATS string   `name:"nats" placeholder:"URL" help:"The NATS cluster of the run, where the document does not name it."`
	Set  []string `placeholder:"KEY=VALUE" sep:"none" help:"Override a key of the config; repeatable. The control plane needs the same."`
}

// Run is the cell until the run has ended or a signal comes.
func (c *cellCmd) Run(a *app.Process) (err error) {
	if err := origin.RefuseRunAsDocument(c.File); err != nil {
		return err
	}
	if err := origin.CheckName(c.Name); err != nil {
		return err
	}
	document := serveCmd{File: c.File, Dir: c.Dir, NATS: c.NATS, Set: c.Set}
	cfg, err := document.document()
	if err != nil {
		return err
	}
	if cfg.Store.NATS.URL == "" {
		return cfg.Refuse("store.nats.url", "is missing: a cell reaches its run over NATS servers", "the address of servers that control plane and cell reach, or --nats")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	handleInterrupts(ctx, func() { cancel(errCellInterrupted) })
	made, err := cell.New(a, cfg, cell.Options{Cell: c.Cell, Run: c.Name, Dir: filepath.Join(cfg.Store.Dir, c.Name), Program: programName(), Columns: surround(a).Columns})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	return made.Run(ctx)
}

var errCellInterrupted = errors.New("it was interrupted")
