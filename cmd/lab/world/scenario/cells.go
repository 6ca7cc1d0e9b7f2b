package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/app/cell"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
)

// serveCell is headway cell.
func (w *World) serveCell(h *machine.Host) error {
	return w.follow(h, h.Name, filepath.Join("runs", runName))
}

// follow runs a process of a cell in a directory.
func (w *World) follow(h *machine.Host, name, dir string) error {
	cfg, process, err := begun(h.Name, "plane0")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", h.IP+apiPort)
	if err != nil {
		return err
	}
	c, err := cell.New(process, cfg, cell.Options{Cell: name, Run: runName, Dir: dir, Program: "world", Listener: listener})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.mu.Lock()
	w.drains[h] = cancel
	w.mu.Unlock()
	if err = errors.Join(c.Run(ctx), c.Close()); err != nil {
		fmt.Fprintln(process.Stderr, "ended:", err)
	}
	return err
}

// twin starts another process of a cell for a while, on a host and in a directory of its own, with the secret that signs claims.
// The one that was there reads of that, and ends. It is started again as after any end, and then takes its place back. Clients
// that connect anew meanwhile reach the twin, if led says so.
func (w *World) twin(a *actor, led bool, lasts time.Duration) {
	name := a.name + "-twin"
	dir := filepath.Join(name, runName)
	if err := furnish(dir, a.name); err != nil {
		w.note(name, "note", err.Error())
		return
	}
	h := w.machine.Host(name, w.plan.Durable)
	h.Go(func() { w.note(name, "note", fmt.Sprint("ended: ", w.follow(h, a.name, dir))) })
	if led {
		defer w.machine.Lead(a.host.Load().IP, h.IP)()
	}
	time.Sleep(lasts)
	h.Kill()
}

// furnish makes the directory of a second process of a cell, unless it is there.
func furnish(dir, cell string) error {
	weights := filepath.Join(dir, "weights")
	if _, err := os.Lstat(weights); err == nil {
		return nil
	}
	own, first := parts.CellDir(dir, cell), parts.CellDir(filepath.Join("runs", runName), cell)
	if err := errors.Join(os.MkdirAll(own, 0o700), os.MkdirAll(first, 0o700)); err != nil {
		return err
	}
	if _, err := parts.Signing(first); err != nil {
		return err
	}
	return errors.Join(os.Link(filepath.Join(first, parts.SigningName), filepath.Join(own, parts.SigningName)),
		os.Symlink(filepath.Join("..", "..", "runs", runName, "weights"), weights))
}
